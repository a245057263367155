//! The rows of MQTT: a service on one thread, and its link on the same; the server is a process of its own and not counted.

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

const SMALL: &str = r#"{"id":7,"cents":1250}"#;

/// Runs one loop of a row.
///
/// # Errors
///
/// Where there is no such row or loop, or something fails that should not.
pub fn run(row: &str, of: &str, run: Run) -> Result<(), String> {
    if of != SERVICE {
        return Err(format!("no loop is named {of:?}"));
    }
    let name = row.strip_prefix("mqtt.").unwrap_or(row).to_owned();
    let server = Instance::start(Kind::Mosquitto, Settings::default()).map_err(|error| error.to_string())?;
    let runtime = program::runtime().map_err(|error| format!("no runtime: {error}"))?;
    let outcome = runtime.block_on(async {
        // While a blocking task runs, the stopped clock does not jump ahead where all wait for the server.
        let (over, wait) = tokio::sync::oneshot::channel::<()>();
        let waiting = tokio::task::spawn_blocking(move || wait.blocking_recv());
        let outcome = rounds(&name, server, run).await;
        drop(over);
        let _ = waiting.await;
        outcome
    });
    drop(runtime);
    outcome
}

/// Goes as far as `run` says: starts the service, feeds it, and ends it with its server.
async fn rounds(name: &str, server: Instance, run: Run) -> Result<(), String> {
    let mut feed = Feed::open(server.port(), IN, SMALL).map_err(|error| format!("the feed: {error}"))?;
    let messages = match run {
        Run::Messages(messages) => messages,
        Run::Idle => {
            drop(server);
            end_here()
        }
        Run::First => {
            let _running = service::start(name, server.url()).await?;
            // A batch that is not full waits by the clock, which stands still.
            let first = if name == "batch64" { 64 } else { 1 };
            MESSAGES.begin(first);
            feed.send(first);
            MESSAGES.done().await;
            drop(server);
            end_here()
        }
    };
    let running = service::start(name, server.url()).await?;
    for _ in 0..messages / ROUND {
        MESSAGES.begin(ROUND);
        feed.send(ROUND);
        MESSAGES.done().await;
    }
    running.shutdown().await.map_err(|error| error.to_string())
}
