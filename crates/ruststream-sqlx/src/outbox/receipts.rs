//! Which messages a consumer has handled, written down in its own transaction.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use ruststream::app::{Background, BackgroundContext, HookResult};
use ruststream::handler::{Call, Extract};
use ruststream::transport::{ErrorKind, TransportError};
use sqlx::Pool;

use super::error::fault;
use super::link::Link;
use super::records::Old;
use super::{OutboxConnection, OutboxDatabase, fields, prepare};
use crate::clock::millis;

/// What the columns take.
const LONGEST: usize = 255;

/// How many rows go at a time.
const BATCH: u16 = 1000;

/// How often old rows are looked for.
const INTERVAL: Duration = Duration::from_mins(1);

const LIMIT: Duration = Duration::from_secs(30);

/// Which messages the consumers of a database have handled: what comes twice takes effect once.
///
/// A handler that asks for [`Once`] writes the message's id down in the transaction of its own effects: either both are there, or
/// neither. Of two deliveries at the same time, the second waits until the first has committed or rolled back, and then learns
/// which. This holds on every broker and with every sender that keeps a `message-id`; the outbox's relay does.
///
/// As a [background service](ruststream::app::AppBuilder::background) of an app it prunes what is older than [`keep`](Self::keep), in
/// bounded batches.
///
/// # Examples
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// use ruststream::prelude::*;
/// use ruststream_sqlx::{Once, Receipts};
///
/// #[subscriber("orders")]
/// async fn bill(order: u64, once: Once, State(pool): State<sqlx::SqlitePool>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     let mut tx = pool.begin().await?;
///     if once.first(&mut *tx).await? {
///         // Writes the bill by the same transaction.
///         tx.commit().await?;
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}?mode=rwc", directory.path().join("bills.db").display());
/// let pool = sqlx::SqlitePool::connect(&url).await?;
/// let receipts = Receipts::new(pool.clone());
/// receipts.prepare().await?;
/// let app = RustStream::new(AppInfo::new("billing", "1.0.0"))
///     .state(pool)
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.include(bill);
///     })
///     .background(receipts)
///     .build();
/// # app.check()?;
/// # Ok(())
/// # }
/// ```
pub struct Receipts<DB: OutboxDatabase> {
    pool: Pool<DB>,
    keep: Duration,
}

impl<DB: OutboxDatabase> Receipts<DB> {
    /// The receipts in the database of this pool.
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            pool,
            keep: Duration::from_hours(7 * 24),
        }
    }

    /// Sets how long receipts are kept: seven days unless set. A message that comes again later than that takes effect again.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Makes the tables, as [`Outbox::prepare`](super::Outbox::prepare) does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn prepare(&self) -> Result<(), TransportError> {
        prepare(&self.pool, true).await
    }

    /// Deletes what is older than [`keep`](Self::keep), in bounded batches; answers how many receipts went.
    ///
    /// # Errors
    ///
    /// Where the database refuses; some may be gone.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, some may be gone.
    pub async fn prune(&self) -> Result<u64, TransportError> {
        let mut link = Link::new(self.pool.clone());
        let pruned = prune(&mut link, Old::Receipts, self.keep).await;
        link.close().await;
        pruned
    }
}

/// Deletes what is old, a batch at a time.
pub(super) async fn prune<DB: OutboxDatabase>(
    link: &mut Link<DB>,
    old: Old,
    keep: Duration,
) -> Result<u64, TransportError> {
    let mut all = 0;
    loop {
        let mut connection = link.take().await?;
        let pruned = tokio::time::timeout(LIMIT, DB::prune(&mut connection, old, millis(keep), i64::from(BATCH))).await;
        let pruned = link.put(connection, pruned)?;
        all += pruned;
        if pruned < u64::from(BATCH) {
            return Ok(all);
        }
        // Others get their turn.
        tokio::task::yield_now().await;
    }
}

impl<DB: OutboxDatabase> Background for Receipts<DB> {
    fn name(&self) -> String {
        "retention of receipts".to_owned()
    }

    async fn run(&self, context: &BackgroundContext) -> HookResult {
        loop {
            match self.prune().await {
                Ok(_) => context.working(),
                // The next time is soon enough.
                Err(error) => context.failing(error.to_string()),
            }
            let wait = INTERVAL.mul_f64(0.8 + 0.4 * fastrand::f64());
            if context.stops_within(wait).await {
                return Ok(());
            }
        }
    }
}

impl<DB: OutboxDatabase> fmt::Debug for Receipts<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts")
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// Tells a handler whether its message takes effect for the first time; see [`Receipts`].
///
/// Messages are told apart by their header `message-id`, and consumers by the name of their subscription.
#[derive(Debug, Clone)]
pub struct Once {
    consumer: String,
    message: Option<String>,
}

impl Once {
    /// Tells consumers apart by this name in place of the subscription's: where two services read queues of one name, or a
    /// subscription was renamed.
    #[must_use]
    pub fn consumer(mut self, consumer: impl Into<String>) -> Self {
        self.consumer = consumer.into();
        self
    }

    /// Writes down, in the caller's transaction, that the message takes effect; false where that was written before. Then nothing is
    /// left to be done.
    ///
    /// # Errors
    ///
    /// Where the message has no `message-id`, or one of more than 255 bytes, and where the database refuses. The handler
    /// should fail then.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, it may be written; the transaction decides.
    pub async fn first<C>(&self, connection: &mut C) -> Result<bool, TransportError>
    where
        C: OutboxConnection,
    {
        let invalid = |text: String| TransportError::new(ErrorKind::Invalid, text);
        let Some(message) = &self.message else {
            return Err(invalid(
                "the message has no header `message-id`, so it cannot be told from others: have its sender set one"
                    .to_owned(),
            ));
        };
        for (what, text) in [("message-id", message), ("name of the consumer", &self.consumer)] {
            if text.is_empty() || text.len() > LONGEST || text.contains('\0') {
                return Err(invalid(format!(
                    "the {what} {text:?} is empty, has more than {LONGEST} bytes, or contains a NUL"
                )));
            }
        }
        connection.receipt(&self.consumer, message).await.map_err(fault)
    }
}

impl<'a, S: Send + Sync> Extract<'a, S> for Once {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        Ok(Self {
            consumer: call.source().to_owned(),
            message: fields::message_id(&call.incoming()).map(str::to_owned),
        })
    }
}
