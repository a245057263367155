//! The rows of Redis: a service on one thread, and fred on the same; the server is a process of its own and not counted.

mod feed;
mod service;

use servers::{Instance, Kind, Settings};

use super::counted::Run;
use super::program::{self, ROUND, Round, end_here};
use super::rows::SERVICE;
use feed::Feed;

/// The round under way. One program runs one row.
static MESSAGES: Round = Round::new();

/// What every row reads.
const IN: &str = "in";

/// Runs one loop of a row.
///
/// # Errors
///
/// Where there is no such row or loop, or something fails that should not.
pub fn run(row: &str, of: &str, run: Run) -> Result<(), String> {
    if of != SERVICE {
        return Err(format!("no loop is named {of:?}"));
    }
    let name = row.strip_prefix("redis.").unwrap_or(row).to_owned();
    let server = Instance::start(Kind::Redis, Settings::default()).map_err(|error| error.to_string())?;
    let runtime = program::runtime().map_err(|error| format!("no runtime: {error}"))?;
    let outcome = runtime.block_on(async {
        // While a blocking task runs, the stopped clock does not jump ahead where all wait for the server.
        let (over, wait) = tokio::sync::oneshot::channel::<()>();
        let waiting = tokio::task::spawn_blocking(move || wait.blocking_recv());
        let outcome = service::run(&name, server, run).await;
        drop(over);
        let _ = waiting.await;
        outcome
    });
    drop(runtime);
    outcome
}

/// Goes as far as `run` says: feeds what `start` has started, and gives it back at the end, with its server.
async fn rounds<R>(
    server: Instance,
    words: &[&str],
    run: Run,
    start: impl AsyncFnOnce() -> Result<R, String>,
) -> Result<(R, Instance), String> {
    let mut feed = Feed::open(server.port(), words).map_err(|error| format!("the feed: {error}"))?;
    let messages = match run {
        Run::Messages(messages) => messages,
        Run::Idle => {
            drop(server);
            end_here()
        }
        Run::First => {
            let _running = start().await?;
            MESSAGES.begin(1);
            feed.send(1);
            MESSAGES.done().await;
            drop(server);
            end_here()
        }
    };
    let started = start().await?;
    for _ in 0..messages / ROUND {
        MESSAGES.begin(ROUND);
        feed.send(ROUND);
        MESSAGES.done().await;
    }
    Ok((started, server))
}
