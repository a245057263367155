//! A service on the transport of this example: `cargo run -p own-transport`.
//!
//! The server knows neither delays nor dead letters. The service has both, because the runtime supplies them: a retry is kept in
//! hand, unsettled, until its time, and what fails for good is published to `jobs.dead`.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

use own_transport::{QueueBroker, Server, Store};
use ruststream::prelude::*;

/// A job that succeeds from its `succeeds`-th attempt on, if ever.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    name: String,
    succeeds: Option<u32>,
}

/// Works on a job.
#[subscriber("jobs", reply = "done")]
async fn work(job: Job, context: Context<'_>) -> Result<String, String> {
    let attempt = context.attempt();
    println!("{:8} attempt {attempt}", job.name);
    match job.succeeds {
        Some(succeeds) if attempt >= succeeds => Ok(job.name),
        _ => Err(format!("{} did not work", job.name)),
    }
}

/// Hears of what was done.
#[subscriber("done")]
async fn done(name: String, left: State<Left>) {
    println!("{name:8} done");
    left.one();
}

/// Hears of what was given up.
#[subscriber("jobs.dead")]
async fn given_up(job: Job, context: Context<'_>, left: State<Left>) {
    let header = |name| context.headers().get_str(name).unwrap_or("?");
    println!(
        "{:8} given up: {} ({})",
        job.name,
        header("dead-letter-error"),
        header("dead-letter-reason")
    );
    left.one();
}

/// Counts what is left to do.
#[derive(Debug, Clone)]
struct Left(tokio::sync::watch::Sender<usize>);

impl Left {
    fn one(&self) {
        self.0.send_modify(|left| *left -= 1);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start("127.0.0.1:0", Store::default()).await?;
    let jobs = [("simple", Some(1)), ("moody", Some(3)), ("hopeless", None)];
    let (left, mut counted) = tokio::sync::watch::channel(jobs.len());

    let running = RustStream::new(AppInfo::new("own-transport", env!("CARGO_PKG_VERSION")))
        .state(Left(left))
        .with_broker(QueueBroker::new(server.address().to_string()), |broker| {
            broker
                .include(work)
                .workers(4)
                .retry(Retry::fixed(Duration::from_millis(300)).attempts(4));
            broker.include(done);
            broker.include(given_up);
        })
        .start()
        .await?;
    for (name, succeeds) in jobs {
        running
            .publisher()
            .publish(
                "jobs",
                &Job {
                    name: name.to_owned(),
                    succeeds,
                },
            )
            .await?;
    }
    counted.wait_for(|left| *left == 0).await?;
    running.shutdown().await?;
    server.stop().await;
    Ok(())
}
