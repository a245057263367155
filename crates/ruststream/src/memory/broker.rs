//! The broker and its connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::faults::{Faults, Operation};
use super::publish::MemoryPublisher;
use super::route::Directory;
use super::source::Queue;
use crate::transport::{Broker, Connection, ErrorKind, TransportError};

/// The in-process broker.
///
/// Clones share the same queues, so that a test keeps one, hands one to the app, and looks into the queues.
///
/// The [module](super) says who gets what and what is promised.
///
/// # Examples
///
/// ```
/// use ruststream::memory::MemoryBroker;
/// use ruststream::message::Outgoing;
/// use ruststream::transport::{Broker, Delivery, Fetch, Publish, Settle, Source, Verdict};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = MemoryBroker::new();
/// broker.publisher().publish(&[Outgoing::new("orders", b"one")]).await?;
///
/// let connection = broker.connect().await?;
/// let (mut fetch, mut settle) = broker.source("orders").open(&connection).await?;
/// let mut deliveries = Vec::new();
/// fetch.fetch(64, &mut deliveries).await?;
/// assert_eq!(deliveries[0].payload(), b"one");
///
/// let mut finished: Vec<_> = deliveries.drain(..).map(|one| (one.into_receipt(), Verdict::Ack)).collect();
/// settle.settle(&mut finished).await?;
/// assert_eq!(broker.counts("orders").acked, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryBroker {
    pub(super) shared: Arc<Shared>,
}

/// What all clones of a broker, and all that was made from it, share.
pub(super) struct Shared {
    directory: Mutex<Directory>,
    pub(super) faults: Faults,
    capacity: AtomicUsize,
    max_payload: AtomicUsize,
    publish_deadline: AtomicU64,
}

impl Shared {
    pub(super) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn max_payload(&self) -> usize {
        self.max_payload.load(Ordering::Relaxed)
    }

    pub(super) fn publish_deadline(&self) -> Duration {
        Duration::from_millis(self.publish_deadline.load(Ordering::Relaxed))
    }
}

impl MemoryBroker {
    /// How many messages a queue holds where nothing else is set.
    pub const DEFAULT_CAPACITY: usize = 10_000;
    /// The largest payload where nothing else is set: 64 MiB.
    pub const DEFAULT_MAX_PAYLOAD: usize = 64 * 1024 * 1024;
    /// How long a publish waits for room where nothing else is set.
    pub const DEFAULT_PUBLISH_DEADLINE: Duration = Duration::from_secs(5);

    /// A broker without queues.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                directory: Mutex::default(),
                faults: Faults::default(),
                capacity: AtomicUsize::new(Self::DEFAULT_CAPACITY),
                max_payload: AtomicUsize::new(Self::DEFAULT_MAX_PAYLOAD),
                publish_deadline: AtomicU64::new(Self::DEFAULT_PUBLISH_DEADLINE.as_millis() as u64),
            }),
        }
    }

    /// Sets how many messages each queue holds: ready, delayed and in hand together, and as many dead letters again. Zero
    /// counts as one.
    ///
    /// Holds for all clones, and for queues made from now on.
    #[must_use]
    pub fn capacity(self, messages: usize) -> Self {
        self.shared.capacity.store(messages.max(1), Ordering::Relaxed);
        self
    }

    /// Sets the largest payload in bytes. Holds for all clones.
    #[must_use]
    pub fn max_payload(self, bytes: usize) -> Self {
        self.shared.max_payload.store(bytes, Ordering::Relaxed);
        self
    }

    /// Sets how long a publish waits for room, in whole milliseconds. Holds for all clones.
    #[must_use]
    pub fn publish_deadline(self, deadline: Duration) -> Self {
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.shared.publish_deadline.store(millis, Ordering::Relaxed);
        self
    }

    /// A publisher that needs no connection: for tests, and for the parts of a program that only publish.
    pub fn publisher(&self) -> MemoryPublisher {
        MemoryPublisher::new(Arc::clone(&self.shared), Arc::default())
    }

    /// Makes the next `count` calls of this kind fail; zero takes an earlier plan back.
    ///
    /// A failed call does nothing else. A fetch that already waits is not the next call.
    pub fn fail_next(&self, operation: Operation, count: usize, kind: ErrorKind) {
        self.shared.faults.fail_next(operation, count, kind);
    }

    /// Cuts the link of every subscription, as a lost network does.
    ///
    /// What is in hand returns to its place and its receipts are stale. Each subscription's fetch, the waiting one included,
    /// fails once as unavailable and works again from the next call.
    pub fn cut(&self) {
        let stores = self.shared.directory().all();
        for store in stores {
            {
                let mut held = store.lock();
                held.cuts += 1;
                held.take_from(|_| true);
            }
            store.wake_all();
        }
    }

    /// Makes every call fail as unavailable until taken back, as an absent server does. Going down cuts every link.
    pub fn set_down(&self, down: bool) {
        self.shared.faults.set_down(down);
        if down {
            self.cut();
        }
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBroker").finish_non_exhaustive()
    }
}

impl Broker for MemoryBroker {
    type Connection = MemoryConnection;
    type Source = Queue;

    fn label(&self) -> String {
        "memory".to_owned()
    }

    fn source(&self, name: &str) -> Queue {
        Queue::new(name)
    }

    /// A broadcast: its queue ends with the subscription.
    fn reply_source(&self, name: &str) -> Queue {
        Queue::broadcast(name)
    }

    async fn connect(&self) -> Result<MemoryConnection, TransportError> {
        self.shared.faults.check(Operation::Connect)?;
        Ok(MemoryConnection {
            shared: Arc::clone(&self.shared),
            closed: Arc::default(),
        })
    }
}

/// A connection to a [`MemoryBroker`].
pub struct MemoryConnection {
    shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
}

impl MemoryConnection {
    /// The broker, where the connection is open and no fault is planned for the call.
    pub(super) fn open(&self, operation: Operation) -> Result<&Arc<Shared>, TransportError> {
        check_open(&self.closed)?;
        self.shared.faults.check(operation)?;
        Ok(&self.shared)
    }
}

pub(super) fn check_open(closed: &AtomicBool) -> Result<(), TransportError> {
    if closed.load(Ordering::Relaxed) {
        return Err(TransportError::new(
            ErrorKind::Closed,
            "the connection to the in-process broker was closed; connect again",
        ));
    }
    Ok(())
}

impl Connection for MemoryConnection {
    type Publisher = MemoryPublisher;

    fn publisher(&self) -> MemoryPublisher {
        MemoryPublisher::new(Arc::clone(&self.shared), Arc::clone(&self.closed))
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.open(Operation::Ping).map(drop)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for MemoryConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryConnection").finish_non_exhaustive()
    }
}
