//! The service that publishes what was written.

mod send;
mod status;
mod turns;

use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;
use ruststream::app::{AppHandle, Background, BackgroundContext, HookResult};
use ruststream::policy::Backoff;
use ruststream::publish::Publisher;
use ruststream::transport::TransportError;

pub(super) use self::status::Status;
use self::turns::Turns;
use super::{Outbox, OutboxDatabase};

/// The service that publishes what an [`Outbox`] was given, as long as the app runs. Any number may work on one outbox, in one process
/// or many.
///
/// A relay claims records, publishes them in groups, and marks them, again and again: it stops when the app does, after the last handler,
/// and publishes what is there before it ends, as far as the grace period lasts.
///
/// - **Claims** are held under a lease and a token, by the database's clock. What a relay held that was killed is published by another
///   when the lease has passed.
/// - **Order**: of the records of one key one is published at a time, the next when the broker has confirmed it; while one waits for its
///   next attempt, those behind it wait too. Records of other keys, and those without, go on. Records of different keys and those without a
///   key travel in groups.
/// - **Failures**: a record that the broker refuses is tried again after a [backoff](Self::backoff), and parked after so many
///   [attempts](Self::attempts). A record that was in hand when its relay was killed has used up one, too. While the broker is away
///   (it answers no ping) no attempts are counted: the relay waits for it, and the health says so.
/// - **A parked record** lets those behind it in its key go on, unless [`parked_keys_stop`](Self::parked_keys_stop) is set.
///
/// Messages pass the publish layers of the broker when they are published.
pub struct Relay<DB: OutboxDatabase> {
    outbox: Outbox<DB>,
    settings: Settings,
}

#[derive(Debug, Clone)]
struct Settings {
    broker: Option<String>,
    workers: usize,
    batch: usize,
    poll: Duration,
    lease: Duration,
    attempts: u32,
    backoff: Backoff,
    parked_stop: bool,
    keep: Option<Duration>,
}

impl<DB: OutboxDatabase> Relay<DB> {
    pub(super) fn new(outbox: Outbox<DB>) -> Self {
        Self {
            outbox,
            settings: Settings {
                broker: None,
                workers: 1,
                batch: 256,
                poll: Duration::from_millis(250),
                lease: Duration::from_secs(30),
                attempts: 10,
                backoff: Backoff::exponential(Duration::from_millis(500)).cap(Duration::from_mins(1)),
                parked_stop: false,
                keep: None,
            },
        }
    }

    /// Publishes on the broker of this label, as the app's [health](ruststream::app::Health) shows it. The app's first unless set.
    #[must_use]
    pub fn broker(mut self, label: impl Into<String>) -> Self {
        self.settings.broker = Some(label.into());
        self
    }

    /// Sets how many groups are under way at a time, each with a connection of its own. One unless set.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers.max(1);
        self
    }

    /// Sets how many records a claim takes at most: 256 unless set, and 512 at most. Large ones are taken in smaller numbers.
    #[must_use]
    pub fn batch(mut self, records: usize) -> Self {
        self.settings.batch = records.clamp(1, 512);
        self
    }

    /// Sets how often a waiting relay looks for records: every 250 ms unless set, give or take a fifth. It does not wait for that
    /// where it is told: by [`Outbox::commit`] in its process, and on Postgres by every process.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets how long claimed records are held: what is in the hands of a relay that was killed is published by another after that time.
    /// 30 s unless set. A group that the broker does not confirm within a third of it is taken for failed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// Sets after how many failed attempts a record is parked. Ten unless set.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts.max(1);
        self
    }

    /// Sets how long a record waits after an attempt that failed: up to 500 ms, doubling to a minute at most, with jitter, unless set.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Makes the key of a parked record stand still until the record is replayed or purged: for consumers to whom a gap is worse than a
    /// stop.
    #[must_use]
    pub fn parked_keys_stop(mut self) -> Self {
        self.settings.parked_stop = true;
        self
    }

    /// Keeps published records for so long, to be looked at; then they are deleted in bounded batches. They are deleted at once unless
    /// this is set.
    #[must_use]
    pub fn keep_published(mut self, time: Duration) -> Self {
        self.settings.keep = Some(time);
        self
    }
}

/// Where a service of an outbox publishes.
pub(super) struct Place {
    pub(super) publisher: Publisher,
    app: AppHandle,
    label: String,
}

impl Place {
    /// On the broker of this label, or the first.
    pub(super) fn on(app: &AppHandle, broker: Option<&str>) -> Result<Self, String> {
        let label = match broker {
            Some(label) => label.to_owned(),
            None => app.brokers().next().unwrap_or_default().to_owned(),
        };
        let Some(publisher) = app.publisher_on(&label) else {
            let known: Vec<_> = app.brokers().collect();
            return Err(format!(
                "the app has no broker of the label `{label}` to publish on; it has `{}`",
                known.join("`, `")
            ));
        };
        Ok(Self {
            publisher,
            app: app.clone(),
            label,
        })
    }

    /// Whether the broker is there.
    pub(super) async fn answers(&self) -> Result<(), TransportError> {
        self.app.ping_on(&self.label).await
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }
}

impl<DB: OutboxDatabase> Background for Relay<DB> {
    fn name(&self) -> String {
        "relay of the outbox".to_owned()
    }

    async fn run(&self, context: &BackgroundContext) -> HookResult {
        let Self { outbox, settings } = self;
        let place = Place::on(context.app(), settings.broker.as_deref())?;
        outbox.prepare().await?;
        context.working();
        let _listening = DB::listen(outbox.pool.clone(), outbox.notify, outbox.status.clone());
        let workers = (0..settings.workers).map(|number| {
            let turns = Turns::new(outbox, settings, &place, context);
            async move { turns.work(number == 0).await }
        });
        join_all(workers).await;
        Ok(())
    }

    async fn caught_up(&self) {
        self.outbox.status.caught_up().await;
    }
}

impl<DB: OutboxDatabase> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
