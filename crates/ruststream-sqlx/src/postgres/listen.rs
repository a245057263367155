//! The task that hears of new messages. What it misses the polls find, so its trouble is no one's but a log's.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::{Instant, sleep, timeout};

use super::dialect::PostgresDialect;
use super::statements;
use crate::server::{Base, SOME};

/// A link that says nothing for so long is tried out.
const QUIET: Duration = Duration::from_secs(10);

/// How long an echo may take.
const ECHO: Duration = Duration::from_secs(3);

/// The waits after failures grow up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Why it cannot listen.
enum Deaf {
    Failed(sqlx::Error),
    /// It is told that it listens, and hears nothing: there is a pooler between.
    NoEcho,
}

impl From<sqlx::Error> for Deaf {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) async fn run(base: Arc<Base<PostgresDialect>>) {
    let label = &base.settings.label;
    let mut failures = 0_u32;
    let mut told = false;
    loop {
        let began = Instant::now();
        let deaf = match hear(&base).await {
            Ok(never) => match never {},
            Err(deaf) => deaf,
        };
        // What came in the gap was not heard of.
        base.news.tell_all();
        if began.elapsed() > QUIET * 2 {
            failures = 0;
            told = false;
        }
        failures = failures.saturating_add(1);
        if !told {
            told = true;
            match &deaf {
                Deaf::Failed(error) => tracing::warn!(
                    database = %label, %error,
                    "cannot hear of new messages for now: they are found by polling, every {:?}", base.settings.poll_interval
                ),
                Deaf::NoEcho => tracing::warn!(
                    database = %label,
                    "notifications do not come through, as behind a pooler in transaction mode: new messages are found by \
                     polling, every {:?}; `.notifications(false)` saves the attempt", base.settings.poll_interval
                ),
            }
        }
        let ceiling = Duration::from_millis(250)
            .saturating_mul(1 << failures.min(7))
            .min(LONGEST_WAIT);
        sleep(ceiling / 2 + ceiling.mul_f64(fastrand::f64() / 2.0)).await;
    }
}

async fn hear(base: &Base<PostgresDialect>) -> Result<std::convert::Infallible, Deaf> {
    let limit = base.settings.connect_timeout;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(limit)
        .connect_lazy_with(base.dialect.options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    // It would reconnect by itself and not say what it missed.
    listener.eager_reconnect(false);
    let channel: String = sqlx::Row::try_get(&listener.fetch_one(statements::CHANNEL).await?, 0)?;
    listener.listen(&channel).await?;
    echo(&mut listener, base, &channel).await?;
    base.news.tell_all();
    loop {
        match timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => take(base, notification.payload()),
            Ok(Ok(None)) => return Err(lost()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => echo(&mut listener, base, &channel).await?,
        }
    }
}

/// Sends a word and waits until it comes back: no library's word that it listens is trusted.
async fn echo(listener: &mut PgListener, base: &Base<PostgresDialect>, channel: &str) -> Result<(), Deaf> {
    let word = format!("?{:016x}", fastrand::u64(..));
    let sending = sqlx::query(statements::ECHO)
        .bind(channel)
        .bind(&word)
        .persistent(false);
    timeout(ECHO, listener.execute(sending)).await.map_err(|_| lost())??;
    let hearing = async {
        loop {
            match listener.try_recv().await? {
                Some(notification) if notification.payload() == word => return Ok(()),
                Some(notification) => take(base, notification.payload()),
                None => return Err(lost()),
            }
        }
    };
    timeout(ECHO, hearing).await.unwrap_or(Err(Deaf::NoEcho))
}

fn lost() -> Deaf {
    Deaf::Failed(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()))
}

/// `TAG/QUEUE`, where a process knows its own tag: it told its claims before.
fn take(base: &Base<PostgresDialect>, payload: &str) {
    if let Some((tag, queue)) = payload.split_once('/')
        && tag != base.dialect.tag
    {
        base.news.tell(queue, SOME);
    }
}
