//! The time of one trivial command.

use std::pin::Pin;

use tokio::time::Instant;

use super::Failed;
use super::judge::rounded;

/// One command on its way.
pub type Command<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send + 'a>>;

/// Sends `command` one time after another and answers with the median of the times in microseconds. To be called from a task, as
/// the loops are.
///
/// # Errors
///
/// Those of `command`.
pub async fn round_trip<C: Send>(
    client: &mut C,
    command: impl for<'a> Fn(&'a mut C) -> Command<'a> + Send,
) -> Result<f64, Failed> {
    const WARM_UP: usize = 200;
    const TRIPS: usize = 2_001;
    for _ in 0..WARM_UP {
        command(client).await?;
    }
    let mut times = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let start = Instant::now();
        command(client).await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(rounded(times[TRIPS / 2].as_secs_f64() * 1e6, 2))
}
