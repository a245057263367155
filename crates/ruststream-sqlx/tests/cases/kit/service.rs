//! The service that runs as a process of its own.

use std::path::PathBuf;
use std::time::Duration;

use ruststream::app::AppHandle;
use ruststream::prelude::*;
use ruststream_sqlx::Inbox;

use super::{Job, Side, Work};
use crate::place::Place as Database;

/// Holds the description of the service that a process is to be.
pub(super) const SERVICE: &str = "RUSTSTREAM_SQLX_CASES_SERVICE";

/// What a process is to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) node: String,
    pub(crate) database: String,
    pub(crate) side: PathBuf,
    queues: Vec<Queue>,
    sending: Option<Sending>,
    grace: Duration,
    hangs_at_start: bool,
}

/// A queue that a service reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Queue {
    name: String,
    workers: usize,
    prefetch: Option<usize>,
    lease: Duration,
    attempts: u32,
    wait: Duration,
}

/// Messages that a service sends, in groups, as fast as it can.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sending {
    pub(crate) queue: String,
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) group: usize,
    pub(crate) work: Work,
}

impl Service {
    pub(crate) fn new(node: &str, database: String, side: PathBuf) -> Self {
        Self {
            node: node.to_owned(),
            database,
            side,
            queues: Vec::new(),
            sending: None,
            grace: Duration::from_secs(30),
            hangs_at_start: false,
        }
    }

    pub(crate) fn reads(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    pub(crate) fn sends(mut self, sending: Sending) -> Self {
        self.sending = Some(sending);
        self
    }

    pub(crate) fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Makes its first hook wait for ever.
    pub(crate) fn hangs_at_start(mut self) -> Self {
        self.hangs_at_start = true;
        self
    }
}

impl Queue {
    /// One worker, five attempts with 50 ms in between, the default lease.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            workers: 1,
            prefetch: None,
            lease: Duration::from_secs(30),
            attempts: 5,
            wait: Duration::from_millis(50),
        }
    }

    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    pub(crate) fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    pub(crate) fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    pub(crate) fn retry(mut self, attempts: u32, wait: Duration) -> Self {
        (self.attempts, self.wait) = (attempts, wait);
        self
    }
}

/// What the handlers of a service share.
#[derive(Debug, Clone)]
struct Shared {
    node: String,
    side: Side,
}

#[subscriber("jobs")]
async fn work(job: Job, context: Context<'_>, State(shared): State<Shared>, out: Out<Job>) -> Result<(), String> {
    let attempt = context.attempt();
    shared.side.write("begin", job.id, attempt, &shared.node);
    let elsewhere = job.only_on.as_ref().is_some_and(|node| *node != shared.node);
    match job.work {
        _ if elsewhere => {}
        Work::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        Work::Fail(times) if attempt <= times => return Err(format!("attempt {attempt} is to fail")),
        Work::Hold(times) if attempt <= times => std::future::pending().await,
        Work::Kill(times) if attempt <= times => {
            super::node::signal(std::process::id(), "KILL");
            std::future::pending::<()>().await;
        }
        Work::Block => loop {
            std::thread::park();
        },
        Work::Send { queue, id, delay } => {
            let sent = out.publish(queue, &Job::new(id, Work::Done));
            let sent = sent.delay(Duration::from_millis(delay)).await;
            sent.map_err(|error| error.to_string())?;
            shared.side.write("sent", id, attempt, &shared.node);
        }
        Work::Done | Work::Fail(_) | Work::Hold(_) | Work::Kill(_) => {}
    }
    shared.side.write("end", job.id, attempt, &shared.node);
    Ok(())
}

/// Is the service that the environment describes, and ends the process as a program would.
pub(crate) fn serve() {
    let Ok(description) = std::env::var(SERVICE) else {
        return;
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let service: Service = serde_json::from_str(&description).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let code = match runtime.block_on(put_together(service).run()) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(%error, source = ?std::error::Error::source(&error).map(ToString::to_string), "the service failed");
            1
        }
    };
    std::process::exit(code);
}

fn put_together(service: Service) -> RustStream {
    let Service {
        node,
        database,
        side,
        queues,
        sending,
        grace,
        hangs_at_start,
    } = service;
    let shared = Shared {
        side: Side::open(&side),
        node,
    };
    let (starting, ready, stopped) = (shared.clone(), shared.clone(), shared.clone());
    RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(shared)
        .with_broker(Database::described(&database), |broker| {
            for queue in queues {
                let inbox = Inbox::queue(&queue.name).lease(queue.lease);
                let subscription = broker.include(work).source(inbox);
                subscription
                    .workers(queue.workers)
                    .retry(Retry::fixed(queue.wait).attempts(queue.attempts));
                if let Some(prefetch) = queue.prefetch {
                    subscription.prefetch(prefetch);
                }
            }
        })
        .shutdown_grace(grace)
        .on_startup(move || async move {
            starting.side.write("starting", 0, 0, &starting.node);
            if hangs_at_start {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
        .after_startup(move |app| async move {
            ready.side.write("ready", 0, 0, &ready.node);
            if let Some(sending) = sending {
                tokio::spawn(send(app, sending, ready));
            }
            Ok(())
        })
        .on_shutdown(move |app| async move {
            for one in app.health().subscriptions {
                stopped.side.write("stale", one.stale, 0, &stopped.node);
                stopped.side.write("workers", one.workers, 0, &stopped.node);
            }
            Ok(())
        })
        .build()
}

/// Notes what is confirmed.
async fn send(app: AppHandle, sending: Sending, shared: Shared) {
    let jobs = Job::many(sending.first..sending.first + sending.count, &sending.work);
    for group in jobs.chunks(sending.group) {
        app.publisher().publish_many(&sending.queue, group).await.unwrap();
        for job in group {
            shared.side.write("sent", job.id, 0, &shared.node);
        }
    }
}
