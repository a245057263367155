//! The task that hears of new records. What it misses the polls find, so its trouble is no one's but a log's.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::{Instant, sleep};

use crate::outbox::relay::Status;

/// The waits after failures grow up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(super) async fn run(options: PgConnectOptions, status: Arc<Status>) {
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let Err(error) = hear(&options, &status).await;
        // What came in the gap was not heard of.
        status.wake();
        failures = if began.elapsed() > LONGEST_WAIT {
            1
        } else {
            failures.saturating_add(1)
        };
        if failures == 1 {
            tracing::warn!(%error, "the relay of the outbox cannot hear of new records for now: they are found by polling");
        }
        let ceiling = Duration::from_millis(250)
            .saturating_mul(1 << failures.min(7))
            .min(LONGEST_WAIT);
        sleep(ceiling / 2 + ceiling.mul_f64(fastrand::f64() / 2.0)).await;
    }
}

async fn hear(options: &PgConnectOptions, status: &Status) -> Result<std::convert::Infallible, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(5))
        .connect_lazy_with(options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    // It would reconnect by itself and not say what it missed.
    listener.eager_reconnect(false);
    listener.listen("ruststream_outbox").await?;
    status.wake();
    loop {
        match listener.try_recv().await? {
            Some(_) => status.wake(),
            None => return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())),
        }
    }
}
