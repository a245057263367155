//! A transport that breaks one promise, around the in-process broker that keeps them all.

mod dead_letters;
mod fetch;
mod publish;
mod settle;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use dead_letters::LosingLetters;
use fetch::BrokenFetch;
use publish::{BrokenPublisher, Unsent};
use ruststream::conformance::Harness;
use ruststream::memory::{MemoryBroker, MemoryConnection, Queue};
use ruststream::transport::{Broker, Capabilities, Connection, DeadLetters, Source, TransportError};
use settle::BrokenSettle;
use tokio::sync::{Mutex, watch};

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    LosesEveryTenth,
    DoublesEveryTenth,
    ReversesWhatItFetches,
    BringsMoreThanThereIsRoomFor,
    ReturnsWithNothing,
    LosesBeyondFiveThousand,
    GivesEachConsumerAll,
    LosesWhatACancelledFetchTook,
    ForgetsAcks,
    AcksWhatItHandsOut,
    CountsReleases,
    PutsReleasedBehind,
    AcksRetries,
    ForgetsAttempts,
    GivesAllTheFirstVerdict,
    KeepsWhatItTookAfterClose,
    RetriesAtOnce,
    RetriesLate,
    PublishesAtOnce,
    KeepsDelaysInMemory,
    RetriesDeadLetters,
    AcksDeadLetters,
    LosesWhatIsReplayed,
    BreaksText,
    CutsAtZero,
    LosesEmpty,
    CutsLarge,
    LosesDuplicateHeaders,
    BreaksHeaderBytes,
    LosesKeys,
    ConfirmsBeforeItStores,
    LosesOneOfTwoAtOnce,
    DoesNotCountStale,
    LetsLateAcksSettle,
    DoesNotRenew,
    HidesLostLeases,
    ReportsHeldLeasesAsLost,
    NeverAnswersPings,
    StaysCutOff,
    HangsAfterACut,
    HidesACut,
    RedeliversWhatWasAcked,
    SettlesSixtyFourAtOnce,
    HandsOutOneAtATime,
    WaitsUntilAllIsSettled,
    StumblesOverContentTypes,
    LosesHeadersBeyondEight,
    ReleasesLate,
    DiesWithADroppedFetch,
}

/// What the parts of one broken transport share.
struct Shared {
    flaw: Flaw,
    is_bare: bool,
    broker: MemoryBroker,
    published: AtomicUsize,
    publishing: AtomicUsize,
    released: AtomicU32,
    was_cut: AtomicBool,
    acked_late: AtomicBool,
}

impl Shared {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }
}

/// The harness, the broker, the connection and the source are one type: each needs only what all share.
#[derive(Clone)]
pub(crate) struct Broken(Arc<Shared>);

impl Broken {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self::with(flaw, false)
    }

    /// One that declares nothing but its count of attempts.
    pub(crate) fn bare(flaw: Flaw) -> Self {
        Self::with(flaw, true)
    }

    fn with(flaw: Flaw, is_bare: bool) -> Self {
        Self(Arc::new(Shared {
            flaw,
            is_bare,
            broker: MemoryBroker::new(),
            published: AtomicUsize::new(0),
            publishing: AtomicUsize::new(0),
            released: AtomicU32::new(0),
            was_cut: AtomicBool::new(false),
            acked_late: AtomicBool::new(false),
        }))
    }
}

impl Harness for Broken {
    type Broker = Self;

    async fn start() -> Self {
        Self::new(Flaw::None)
    }

    fn broker(&self) -> Self {
        self.clone()
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<BrokenSource> {
        (!self.0.is_bare).then(|| BrokenSource {
            shared: Arc::clone(&self.0),
            queue: Queue::new(name).lease(lease),
        })
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let letters = self.0.broker.dead_letters(name);
        Ok(Some(letters.iter().map(|dead| dead.payload.to_vec()).collect()))
    }

    async fn cut(&self) -> bool {
        self.0.broker.cut();
        self.0.was_cut.store(true, Ordering::Relaxed);
        true
    }
}

impl Broker for Broken {
    type Connection = BrokenConnection;
    type Source = BrokenSource;

    fn label(&self) -> String {
        format!("broken: {:?}", self.0.flaw)
    }

    fn source(&self, name: &str) -> BrokenSource {
        let queue = if self.0.has(Flaw::GivesEachConsumerAll) {
            Queue::broadcast(name)
        } else {
            Queue::new(name)
        };
        BrokenSource {
            shared: Arc::clone(&self.0),
            queue,
        }
    }

    async fn connect(&self) -> Result<BrokenConnection, TransportError> {
        Ok(BrokenConnection {
            shared: Arc::clone(&self.0),
            inner: self.0.broker.connect().await?,
            unsent: Arc::default(),
        })
    }
}

pub(crate) struct BrokenConnection {
    shared: Arc<Shared>,
    inner: MemoryConnection,
    unsent: Arc<Unsent>,
}

impl Connection for BrokenConnection {
    type Publisher = BrokenPublisher;

    fn publisher(&self) -> BrokenPublisher {
        BrokenPublisher {
            shared: Arc::clone(&self.shared),
            inner: self.inner.publisher(),
            unsent: Arc::clone(&self.unsent),
        }
    }

    async fn ping(&self) -> Result<(), TransportError> {
        if self.shared.has(Flaw::NeverAnswersPings) {
            std::future::pending::<()>().await;
        }
        self.inner.ping().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

pub(crate) struct BrokenSource {
    shared: Arc<Shared>,
    queue: Queue,
}

impl Source for BrokenSource {
    type Connection = BrokenConnection;
    type Fetch = BrokenFetch;
    type Settle = BrokenSettle;

    fn name(&self) -> &str {
        self.queue.name()
    }

    fn capabilities(&self) -> Capabilities {
        if self.shared.is_bare {
            Capabilities::none().with_attempts()
        } else {
            self.queue.capabilities()
        }
    }

    async fn open(&self, connection: &BrokenConnection) -> Result<(BrokenFetch, BrokenSettle), TransportError> {
        let (fetch, settle) = self.queue.open(&connection.inner).await?;
        let settle = Arc::new(Mutex::new(settle));
        let in_hand = Arc::new(watch::Sender::new(0));
        let shared = || Arc::clone(&self.shared);
        Ok((
            BrokenFetch {
                shared: shared(),
                inner: fetch,
                settle: Arc::clone(&settle),
                hoard: VecDeque::new(),
                in_hand: Arc::clone(&in_hand),
                is_waiting: false,
            },
            BrokenSettle {
                shared: shared(),
                inner: settle,
                waiting: Vec::new(),
                in_hand,
            },
        ))
    }

    async fn dead_letters(
        &self,
        connection: &BrokenConnection,
    ) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        let letters = self.queue.dead_letters(&connection.inner).await?;
        Ok(letters.map(|letters| match self.shared.flaw {
            Flaw::LosesWhatIsReplayed => Box::new(LosingLetters(letters)),
            _ => letters,
        }))
    }
}
