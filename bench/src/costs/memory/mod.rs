//! The rows of the in-process broker.

mod bare;
mod feed;
mod lent;
mod messages;
mod service;

use super::counted::Run;
use super::program::{self, ROUND, Round, end_here};
use super::rows::{BARE, SERVICE};
use feed::Feed;
use ruststream::memory::MemoryBroker;

/// The round under way. One program runs one row.
static MESSAGES: Round = Round::new();

/// Runs one loop of a row.
///
/// # Errors
///
/// Where there is no such row or loop, or something fails that should not.
pub fn run(row: &str, of: &str, run: Run) -> Result<(), String> {
    let name = row.strip_prefix("memory.").unwrap_or(row).to_owned();
    program::runtime()
        .map_err(|error| format!("no runtime: {error}"))?
        .block_on(async {
            match of {
                SERVICE => service::run(&name, run).await,
                BARE => bare::run(&name, run).await,
                other => Err(format!("no loop is named {other:?}")),
            }
        })
}

/// Goes as far as `run` says: feeds what `start` has started, and gives it back at the end.
async fn rounds<R>(
    broker: &MemoryBroker,
    name: &str,
    run: Run,
    start: impl AsyncFnOnce() -> Result<R, String>,
) -> Result<R, String> {
    let mut feed = Feed::open(broker, name).await?;
    let messages = match run {
        Run::Idle | Run::First => {
            MESSAGES.begin(1);
            feed.publish(1);
            if run == Run::Idle {
                end_here();
            }
            let _running = start().await?;
            MESSAGES.done().await;
            end_here();
        }
        Run::Messages(messages) => messages,
    };
    let started = start().await?;
    for _ in 0..messages / ROUND {
        MESSAGES.begin(ROUND);
        feed.publish(ROUND);
        MESSAGES.done().await;
    }
    Ok(started)
}
