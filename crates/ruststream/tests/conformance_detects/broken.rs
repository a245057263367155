//! A transport that breaks one promise, around the in-process broker that keeps them all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use ruststream::conformance::Harness;
use ruststream::memory::{
    MemoryBroker, MemoryConnection, MemoryDelivery, MemoryFetch, MemoryPublisher, MemoryReceipt, MemorySettle, Queue,
};
use ruststream::message::{Headers, Outgoing};
use ruststream::transport::{
    Broker, Capabilities, Connection, Delivery, ErrorKind, Fetch, Publish, PublishError, Settle, Settled, Source,
    TransportError, Verdict,
};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

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
}

/// What the parts of one broken transport share.
struct Shared {
    flaw: Flaw,
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
        Self(Arc::new(Shared {
            flaw,
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
        Some(BrokenSource {
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

    fn source(&self, name: &str) -> Result<BrokenSource, TransportError> {
        let queue = if self.0.has(Flaw::GivesEachConsumerAll) {
            Queue::broadcast(name)
        } else {
            Queue::new(name)
        };
        Ok(BrokenSource {
            shared: Arc::clone(&self.0),
            queue,
        })
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

/// Publishes that were confirmed and not yet made; they end with their connection.
#[derive(Default)]
struct Unsent(std::sync::Mutex<Vec<JoinHandle<()>>>);

impl Drop for Unsent {
    fn drop(&mut self) {
        for task in self.0.get_mut().unwrap().drain(..) {
            task.abort();
        }
    }
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

#[derive(Clone)]
pub(crate) struct BrokenPublisher {
    shared: Arc<Shared>,
    inner: MemoryPublisher,
    unsent: Arc<Unsent>,
}

impl BrokenPublisher {
    /// How often the next message is stored.
    fn copies(&self, message: &Outgoing<'_>) -> usize {
        let number = 1 + self.shared.published.fetch_add(1, Ordering::Relaxed);
        match self.shared.flaw {
            Flaw::LosesEveryTenth if number.is_multiple_of(10) => 0,
            Flaw::DoublesEveryTenth if number.is_multiple_of(10) => 2,
            Flaw::LosesBeyondFiveThousand if number > 5000 => 0,
            Flaw::LosesEmpty if message.payload().is_empty() => 0,
            _ => 1,
        }
    }

    /// The payload and the headers as they are stored.
    fn spoiled(&self, message: &Outgoing<'_>) -> (Vec<u8>, Headers) {
        let mut payload = message.payload().to_vec();
        let mut headers = message.headers().clone();
        match self.shared.flaw {
            Flaw::BreaksText => {
                if let Ok(text) = std::str::from_utf8(message.payload()) {
                    payload = text.replace(|letter: char| !letter.is_ascii(), "?").into_bytes();
                }
            }
            Flaw::CutsAtZero => payload.truncate(payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len())),
            Flaw::CutsLarge => payload.truncate(64 * 1024),
            Flaw::LosesDuplicateHeaders => {
                headers = Headers::new();
                for (name, value) in message.headers().iter() {
                    headers.insert(name.to_owned(), value.to_vec());
                }
            }
            Flaw::BreaksHeaderBytes => {
                let lossy = |value| String::from_utf8_lossy(value).into_owned();
                let pairs = message.headers().iter();
                headers = pairs.map(|(name, value)| (name.to_owned(), lossy(value))).collect();
            }
            _ => {}
        }
        (payload, headers)
    }
}

impl Publish for BrokenPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let shared = &self.shared;
        if shared.has(Flaw::LosesOneOfTwoAtOnce) {
            let others = shared.publishing.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            shared.publishing.fetch_sub(1, Ordering::Relaxed);
            if others > 0 {
                return Ok(());
            }
        }
        for message in messages {
            let copies = self.copies(message);
            let (payload, headers) = self.spoiled(message);
            let mut stored = Outgoing::new(message.destination(), &payload).with_headers(&headers);
            if let Some(key) = message.key().filter(|_| !shared.has(Flaw::LosesKeys)) {
                stored = stored.with_key(key);
            }
            if !shared.has(Flaw::PublishesAtOnce) {
                stored = stored.with_delay(message.delay());
            }
            if shared.has(Flaw::ConfirmsBeforeItStores) {
                let publisher = self.inner.clone();
                let destination = message.destination().to_owned();
                let key = message.key().map(<[u8]>::to_vec);
                let delay = message.delay();
                let task = tokio::spawn(async move {
                    sleep(Duration::from_millis(1)).await;
                    let mut late = Outgoing::new(&destination, &payload)
                        .with_headers(&headers)
                        .with_delay(delay);
                    if let Some(key) = &key {
                        late = late.with_key(key);
                    }
                    let _ = publisher.publish(&[late]).await;
                });
                self.unsent.0.lock().unwrap().push(task);
                continue;
            }
            for _ in 0..copies {
                self.inner.publish(&[stored]).await?;
            }
        }
        Ok(())
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
        self.queue.capabilities()
    }

    async fn open(&self, connection: &BrokenConnection) -> Result<(BrokenFetch, BrokenSettle), TransportError> {
        let (fetch, settle) = self.queue.open(&connection.inner).await?;
        let settle = Arc::new(Mutex::new(settle));
        let shared = || Arc::clone(&self.shared);
        Ok((
            BrokenFetch {
                shared: shared(),
                inner: fetch,
                settle: Arc::clone(&settle),
                hoard: VecDeque::new(),
            },
            BrokenSettle {
                shared: shared(),
                inner: settle,
                waiting: Vec::new(),
            },
        ))
    }
}

pub(crate) struct BrokenFetch {
    shared: Arc<Shared>,
    inner: MemoryFetch,
    settle: Arc<Mutex<MemorySettle>>,
    hoard: VecDeque<MemoryDelivery>,
}

impl Fetch for BrokenFetch {
    type Delivery = BrokenDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<BrokenDelivery>) -> Result<(), TransportError> {
        let shared = &self.shared;
        let mut taken = Vec::new();
        match shared.flaw {
            Flaw::ReturnsWithNothing => {
                let fetch = self.inner.fetch(room, &mut taken);
                if let Ok(outcome) = tokio::time::timeout(Duration::from_millis(10), fetch).await {
                    outcome?;
                }
            }
            Flaw::StaysCutOff if shared.was_cut.load(Ordering::Relaxed) => {
                return Err(TransportError::new(ErrorKind::Unavailable, "the link is cut"));
            }
            Flaw::BringsMoreThanThereIsRoomFor => self.inner.fetch(room + 1, &mut taken).await?,
            Flaw::LosesWhatACancelledFetchTook => {
                self.inner.fetch(room, &mut taken).await?;
                tokio::task::yield_now().await;
            }
            Flaw::KeepsWhatItTookAfterClose => {
                if self.hoard.is_empty() {
                    self.inner.fetch(room + 2, &mut taken).await?;
                    self.hoard.extend(taken.drain(..));
                }
                taken.extend(self.hoard.drain(..room.min(self.hoard.len())));
            }
            _ => self.inner.fetch(room, &mut taken).await?,
        }
        if shared.has(Flaw::ReversesWhatItFetches) {
            taken.reverse();
        }
        let attempt = |inner: &MemoryDelivery| match shared.flaw {
            Flaw::ForgetsAttempts => 1,
            Flaw::PutsReleasedBehind => inner.attempt().saturating_sub(shared.released.load(Ordering::Relaxed)),
            _ => inner.attempt(),
        };
        let mut deliveries: Vec<_> = taken
            .into_iter()
            .map(|inner| BrokenDelivery {
                attempt: attempt(&inner),
                lent: None,
                inner: Some(inner),
            })
            .collect();
        if shared.has(Flaw::AcksWhatItHandsOut) {
            let mut finished = Vec::new();
            for delivery in &mut deliveries {
                if let Some(inner) = delivery.inner.take() {
                    let key = inner.key().map(<[u8]>::to_vec);
                    delivery.lent = Some((inner.payload().to_vec(), inner.headers().clone(), key));
                    finished.push((inner.into_receipt(), Verdict::Ack));
                }
            }
            self.settle.lock().await.settle(&mut finished).await?;
        }
        into.append(&mut deliveries);
        Ok(())
    }
}

pub(crate) struct BrokenDelivery {
    /// Absent where it was acked already; then its parts are here.
    inner: Option<MemoryDelivery>,
    lent: Option<(Vec<u8>, Headers, Option<Vec<u8>>)>,
    attempt: u32,
}

impl Delivery for BrokenDelivery {
    type Receipt = Option<MemoryReceipt>;

    fn payload(&self) -> &[u8] {
        match (&self.inner, &self.lent) {
            (Some(inner), _) => inner.payload(),
            (None, lent) => lent.as_ref().map_or(&[], |(payload, ..)| payload),
        }
    }

    fn headers(&self) -> &Headers {
        static NONE: Headers = Headers::new();
        match (&self.inner, &self.lent) {
            (Some(inner), _) => inner.headers(),
            (None, lent) => lent.as_ref().map_or(&NONE, |(_, headers, _)| headers),
        }
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn key(&self) -> Option<&[u8]> {
        match (&self.inner, &self.lent) {
            (Some(inner), _) => inner.key(),
            (None, lent) => lent.as_ref().and_then(|(_, _, key)| key.as_deref()),
        }
    }

    fn lease_id(&self) -> u64 {
        self.inner.as_ref().map_or(0, Delivery::lease_id)
    }

    fn into_receipt(self) -> Option<MemoryReceipt> {
        self.inner.map(Delivery::into_receipt)
    }
}

pub(crate) struct BrokenSettle {
    shared: Arc<Shared>,
    inner: Arc<Mutex<MemorySettle>>,
    waiting: Vec<JoinHandle<()>>,
}

impl BrokenSettle {
    /// The verdict that the broker gets to see; `None` where it sees none.
    fn spoiled(&self, verdict: Verdict) -> Option<Verdict> {
        const AT_ONCE: Verdict = Verdict::Retry { after: Duration::ZERO };
        Some(match (self.shared.flaw, verdict) {
            (Flaw::ForgetsAcks, Verdict::Ack) => return None,
            (Flaw::CountsReleases, Verdict::Release) => AT_ONCE,
            (Flaw::PutsReleasedBehind, Verdict::Release) => {
                self.shared.released.fetch_add(1, Ordering::Relaxed);
                AT_ONCE
            }
            (Flaw::LetsLateAcksSettle, Verdict::Retry { .. }) if self.shared.acked_late.load(Ordering::Relaxed) => {
                Verdict::Ack
            }
            (Flaw::AcksRetries, Verdict::Retry { .. }) | (Flaw::AcksDeadLetters, Verdict::DeadLetter(_)) => {
                Verdict::Ack
            }
            (Flaw::RetriesAtOnce, Verdict::Retry { .. }) | (Flaw::RetriesDeadLetters, Verdict::DeadLetter(_)) => {
                AT_ONCE
            }
            (Flaw::RetriesLate, Verdict::Retry { after }) if !after.is_zero() => Verdict::Retry {
                after: after + Duration::from_secs(1),
            },
            (_, verdict) => verdict,
        })
    }
}

impl Settle for BrokenSettle {
    type Receipt = Option<MemoryReceipt>;

    async fn settle(
        &mut self,
        finished: &mut Vec<(Option<MemoryReceipt>, Verdict)>,
    ) -> Result<Settled, TransportError> {
        let first = finished.first().map(|(_, verdict)| verdict.clone());
        let mut inner = Vec::new();
        for (receipt, mut verdict) in finished.drain(..) {
            if self.shared.has(Flaw::GivesAllTheFirstVerdict) {
                verdict = first.clone().unwrap_or(verdict);
            }
            let (Some(receipt), Some(verdict)) = (receipt, self.spoiled(verdict)) else {
                continue;
            };
            match verdict {
                Verdict::Retry { after } if !after.is_zero() && self.shared.has(Flaw::KeepsDelaysInMemory) => {
                    let settle = Arc::clone(&self.inner);
                    self.waiting.push(tokio::spawn(async move {
                        sleep(after).await;
                        let now = Verdict::Retry { after: Duration::ZERO };
                        let _ = settle.lock().await.settle(&mut vec![(receipt, now)]).await;
                    }));
                }
                verdict => inner.push((receipt, verdict)),
            }
        }
        let mut settled = self.inner.lock().await.settle(&mut inner).await?;
        if settled.stale > 0 {
            self.shared.acked_late.store(true, Ordering::Relaxed);
        }
        if self.shared.has(Flaw::DoesNotCountStale) {
            settled.stale = 0;
        }
        Ok(settled)
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        match self.shared.flaw {
            Flaw::DoesNotRenew => Ok(()),
            Flaw::HidesLostLeases => self.inner.lock().await.renew(&mut Vec::new()).await,
            Flaw::ReportsHeldLeasesAsLost => {
                lost.push(7);
                self.inner.lock().await.renew(lost).await
            }
            _ => self.inner.lock().await.renew(lost).await,
        }
    }
}

impl Drop for BrokenSettle {
    fn drop(&mut self) {
        for task in &self.waiting {
            task.abort();
        }
    }
}
