//! Tracking as layers: what is published under a registered name is recorded before it is sent, handled once, and marked.

mod lane;
mod publish;
mod resend;
mod subscribe;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::TransportError;

pub use self::publish::TrackedRecord;
pub use self::resend::TrackedResend;
pub use self::subscribe::TrackedMark;

use self::lane::Lanes;
use super::error::fault;
use super::{Outbox, OutboxDatabase, prepare};

/// Tracks what is published under registered names, by two layers and a background service. Made by [`Outbox::tracked`].
///
/// - [`record`](Self::record), a publish layer, writes each message of those names into the outbox's database before it is sent. From then
///   on it is delivered at least once, whatever the broker keeps: also where the publish itself answers with an error.
/// - [`mark`](Self::mark), a layer around the handlers that receive them, claims the record of a message, calls the handler, and marks the
///   record as handled. Two deliveries of one record never run at the same time, and one that was handled is acked without a call.
/// - [`resend`](Self::resend), a background service, sends again what no one has marked, and cleans up what was.
///
/// Messages of other names pass the first layer after one look at their destination, and the second after one look at their headers.
///
/// A record is for one consumer: the first subscription that claims it. Where several subscriptions get each message, the others handle it as
/// if it were not tracked; they have [`Receipts`](super::Receipts). There is no order among what is sent again; for that there
/// is the outbox itself.
///
/// # Examples
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// use ruststream::prelude::*;
/// use ruststream_sqlx::Outbox;
///
/// #[subscriber("orders")]
/// async fn ship(order: u64) {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}?mode=rwc", directory.path().join("shop.db").display());
/// let pool = sqlx::SqlitePool::connect(&url).await?;
/// let tracked = Outbox::new(pool).tracked(["orders"]);
/// tracked.prepare().await?;
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.publish_layer(tracked.record());
///         broker.layer(tracked.mark(), |broker| {
///             broker.include(ship).workers(8);
///         });
///     })
///     .background(tracked.resend())
///     .build();
/// # app.check()?;
/// # Ok(())
/// # }
/// ```
pub struct Tracked<DB: OutboxDatabase> {
    shared: Arc<Shared<DB>>,
}

/// What both layers and the service share.
struct Shared<DB: OutboxDatabase> {
    outbox: Outbox<DB>,
    names: HashSet<String>,
    lanes: Lanes<DB>,
    settings: Settings,
}

#[derive(Debug, Clone)]
struct Settings {
    resend_after: Duration,
    longest: Duration,
    attempts: u32,
    lease: Duration,
    keep: Duration,
    broker: Option<String>,
}

impl<DB: OutboxDatabase> Tracked<DB> {
    pub(super) fn new(outbox: Outbox<DB>, names: HashSet<String>) -> Self {
        let settings = Settings {
            resend_after: Duration::from_secs(30),
            longest: Duration::from_mins(10),
            attempts: 50,
            lease: Duration::from_secs(30),
            keep: Duration::from_hours(24),
            broker: None,
        };
        Self::of(outbox, names, settings)
    }

    fn of(outbox: Outbox<DB>, names: HashSet<String>, settings: Settings) -> Self {
        Self {
            shared: Arc::new(Shared {
                lanes: Lanes::new(&outbox.pool),
                outbox,
                names,
                settings,
            }),
        }
    }

    /// The same with other settings; before its layers are made.
    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.shared.settings.clone();
        change(&mut settings);
        Self::of(self.shared.outbox.clone(), self.shared.names.clone(), settings)
    }

    /// Sets after what time a message that was not marked is sent again: 30 s unless set, and as much longer after each time, up to ten
    /// minutes.
    #[must_use]
    pub fn resend_after(self, time: Duration) -> Self {
        self.set(|settings| {
            settings.resend_after = time.max(Duration::from_millis(1));
            settings.longest = settings.longest.max(time);
        })
    }

    /// Sets how often a message is sent again at most; then it is parked. 50 times unless set. What fails because the broker is away
    /// does not count.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        self.set(|settings| settings.attempts = attempts.max(1))
    }

    /// Sets how long a record is claimed by the call that handles it. It is renewed while that runs, so this is how long a call that
    /// was killed keeps others waiting. 30 s unless set.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.set(|settings| settings.lease = lease.max(Duration::from_millis(30)))
    }

    /// Sets how long marks are kept: a message that comes again later than that is handled again. A day unless set.
    #[must_use]
    pub fn keep(self, time: Duration) -> Self {
        self.set(|settings| settings.keep = time)
    }

    /// Sends again on the broker of this label: the one that [`record`](Self::record) is put on. The app's first unless set.
    #[must_use]
    pub fn broker(self, label: impl Into<String>) -> Self {
        self.set(|settings| settings.broker = Some(label.into()))
    }

    /// Makes the tables, as [`Outbox::prepare`] does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn prepare(&self) -> Result<(), TransportError> {
        prepare(&self.shared.outbox.pool, self.shared.outbox.migrate).await
    }

    /// The publish layer: put it on the broker that the names are published on, behind layers that change messages.
    pub fn record(&self) -> TrackedRecord<DB> {
        TrackedRecord(self.shared.clone())
    }

    /// The layer around the handlers that receive what is tracked.
    pub fn mark(&self) -> TrackedMark<DB> {
        TrackedMark(self.shared.clone())
    }

    /// The background service that sends again what was left over.
    pub fn resend(&self) -> TrackedResend<DB> {
        TrackedResend(self.shared.clone())
    }

    /// Has messages sent again that were parked since no one marked them, however often they were sent. Answers how many there were.
    ///
    /// # Errors
    ///
    /// Where the database refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, it may be done or not.
    pub async fn replay_parked(&self) -> Result<u64, TransportError> {
        let mut connection = self.shared.outbox.pool.acquire().await.map_err(fault)?;
        DB::tracked_replay(&mut connection).await.map_err(fault)
    }

    /// How many messages are recorded and neither marked nor given up, and how many were parked. It counts rows.
    ///
    /// # Errors
    ///
    /// Where the database cannot be read.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn open(&self) -> Result<(u64, u64), TransportError> {
        let mut connection = self.shared.outbox.pool.acquire().await.map_err(fault)?;
        let (open, parked) = DB::tracked_counts(&mut connection).await.map_err(fault)?;
        Ok((open.unsigned_abs(), parked.unsigned_abs()))
    }
}

impl<DB: OutboxDatabase> Clone for Tracked<DB> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<DB: OutboxDatabase> fmt::Debug for Tracked<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked")
            .field("names", &self.shared.names)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}
