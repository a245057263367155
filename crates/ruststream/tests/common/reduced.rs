//! A transport that does less than the in-process broker which carries it, and fails where a test asks it to.

use std::sync::{Arc, Mutex};

use ruststream::memory::{
    MemoryBroker, MemoryConnection, MemoryDelivery, MemoryFetch, MemoryReceipt, MemorySettle, Queue,
};
use ruststream::transport::{
    Broker, Capabilities, Connection, Fetch, Publish, Settle, Settled, Source, TransportError, Verdict,
};

/// A half of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Fetch,
    Settle,
    Recover,
}

/// What a call of a half does instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Panic,
    Fail(ruststream::transport::ErrorKind),
}

#[derive(Default)]
struct Book {
    faults: Vec<(Half, Fault)>,
    fetched_at: Vec<tokio::time::Instant>,
    beyond: Vec<String>,
}

/// The in-process broker, of which a source declares and uses no more than `capabilities`.
///
/// A verdict that goes beyond them is noted: see [`beyond`](Self::beyond).
#[derive(Clone)]
pub(crate) struct Reduced {
    pub(crate) broker: MemoryBroker,
    capabilities: Capabilities,
    book: Arc<Mutex<Book>>,
}

impl Reduced {
    pub(crate) fn new(broker: &MemoryBroker, capabilities: Capabilities) -> Self {
        Self {
            broker: broker.clone(),
            capabilities,
            book: Arc::default(),
        }
    }

    /// Makes the next calls of a half do these instead of their work.
    pub(crate) fn next(&self, half: Half, faults: impl IntoIterator<Item = Fault>) {
        let mut book = self.book.lock().unwrap();
        book.faults.extend(faults.into_iter().map(|fault| (half, fault)));
    }

    /// When each fetch began.
    pub(crate) fn fetched_at(&self) -> Vec<tokio::time::Instant> {
        self.book.lock().unwrap().fetched_at.clone()
    }

    /// The verdicts given that the capabilities do not allow.
    pub(crate) fn beyond(&self) -> Vec<String> {
        self.book.lock().unwrap().beyond.clone()
    }

    fn fault(&self, half: Half) -> Result<(), TransportError> {
        let fault = {
            let mut book = self.book.lock().unwrap();
            let place = book.faults.iter().position(|(of, _)| *of == half);
            place.map(|place| book.faults.remove(place).1)
        };
        match fault {
            None => Ok(()),
            Some(Fault::Panic) => panic!("the transport panics in {half:?}"),
            Some(Fault::Fail(kind)) => Err(TransportError::new(kind, format!("{half:?} fails as {kind:?}"))),
        }
    }
}

impl Broker for Reduced {
    type Connection = ReducedConnection;
    type Source = ReducedSource;

    fn label(&self) -> String {
        "reduced".to_owned()
    }

    fn source(&self, name: &str) -> ReducedSource {
        ReducedSource {
            queue: self.broker.source(name),
            settings: self.clone(),
        }
    }

    async fn connect(&self) -> Result<ReducedConnection, TransportError> {
        Ok(ReducedConnection(self.broker.connect().await?))
    }
}

pub(crate) struct ReducedConnection(MemoryConnection);

impl Connection for ReducedConnection {
    type Publisher = WithoutDelay;

    fn publisher(&self) -> WithoutDelay {
        WithoutDelay(self.0.publisher())
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.0.ping().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

#[derive(Clone)]
pub(crate) struct WithoutDelay(ruststream::memory::MemoryPublisher);

impl Publish for WithoutDelay {
    async fn publish(
        &self,
        messages: &[ruststream::message::Outgoing<'_>],
    ) -> Result<(), ruststream::transport::PublishError> {
        self.0.publish(messages).await
    }
}

pub(crate) struct ReducedSource {
    queue: Queue,
    settings: Reduced,
}

impl Source for ReducedSource {
    type Connection = ReducedConnection;
    type Fetch = ReducedFetch;
    type Settle = ReducedSettle;

    fn name(&self) -> &str {
        Source::name(&self.queue)
    }

    fn capabilities(&self) -> Capabilities {
        self.settings.capabilities
    }

    async fn open(&self, connection: &ReducedConnection) -> Result<(ReducedFetch, ReducedSettle), TransportError> {
        let (fetch, settle) = self.queue.open(&connection.0).await?;
        let settings = self.settings.clone();
        Ok((
            ReducedFetch {
                half: fetch,
                settings: settings.clone(),
            },
            ReducedSettle { half: settle, settings },
        ))
    }
}

pub(crate) struct ReducedFetch {
    half: MemoryFetch,
    settings: Reduced,
}

impl Fetch for ReducedFetch {
    type Delivery = MemoryDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<MemoryDelivery>) -> Result<(), TransportError> {
        let now = tokio::time::Instant::now();
        self.settings.book.lock().unwrap().fetched_at.push(now);
        self.settings.fault(Half::Fetch)?;
        self.half.fetch(room, into).await
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        self.settings.fault(Half::Recover)
    }
}

pub(crate) struct ReducedSettle {
    half: MemorySettle,
    settings: Reduced,
}

impl Settle for ReducedSettle {
    type Receipt = MemoryReceipt;

    async fn settle(&mut self, finished: &mut Vec<(MemoryReceipt, Verdict)>) -> Result<Settled, TransportError> {
        self.settings.fault(Half::Settle)?;
        for (_, verdict) in finished.iter() {
            let allowed = match verdict {
                Verdict::Retry { after } => after.is_zero() || self.settings.capabilities.delay(),
                Verdict::DeadLetter(_) => self.settings.capabilities.dead_letters(),
                _ => true,
            };
            if !allowed {
                self.settings.book.lock().unwrap().beyond.push(format!("{verdict:?}"));
            }
        }
        self.half.settle(finished).await
    }
}
