//! A broker that writes down what it takes, and refuses what a test says.

use std::sync::{Arc, Mutex};

use ruststream::memory::{MemoryBroker, MemoryConnection, MemoryFetch, MemoryPublisher, MemorySettle, Queue};
use ruststream::message::{Outgoing, header};
use ruststream::transport::{
    Broker, Capabilities, Connection, ErrorKind, Publish, PublishError, Source, TransportError,
};

/// What a broker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) destination: String,
    pub(crate) key: String,
    pub(crate) payload: String,
    pub(crate) id: String,
    pub(crate) at: tokio::time::Instant,
}

type Rule = dyn Fn(&str, &str) -> Option<ErrorKind> + Send + Sync;

/// A broker over the one in process.
#[derive(Clone)]
pub(crate) struct Picky {
    pub(crate) memory: MemoryBroker,
    taken: Arc<Mutex<Vec<Taken>>>,
    groups: Arc<Mutex<Vec<usize>>>,
    rule: Arc<Rule>,
}

impl Picky {
    pub(crate) fn new() -> Self {
        Self::refusing(|_, _| None)
    }

    /// One that refuses a message of a key and payload as the rule says.
    pub(crate) fn refusing(rule: impl Fn(&str, &str) -> Option<ErrorKind> + Send + Sync + 'static) -> Self {
        Self {
            memory: MemoryBroker::new().capacity(1_000_000),
            taken: Arc::default(),
            groups: Arc::default(),
            rule: Arc::new(rule),
        }
    }

    /// All it has taken, in order.
    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap().clone()
    }

    /// The payloads of one key, in order.
    pub(crate) fn of(&self, key: &str) -> Vec<String> {
        let taken = self.taken();
        taken
            .into_iter()
            .filter(|one| one.key == key)
            .map(|one| one.payload)
            .collect()
    }

    /// How many messages came with each call.
    pub(crate) fn groups(&self) -> Vec<usize> {
        self.groups.lock().unwrap().clone()
    }
}

pub(crate) struct PickyConnection {
    memory: MemoryConnection,
    picky: Picky,
}

#[derive(Clone)]
pub(crate) struct PickyPublisher {
    memory: MemoryPublisher,
    picky: Picky,
}

pub(crate) struct PickyQueue(Queue);

impl Publish for PickyPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        self.picky.groups.lock().unwrap().push(messages.len());
        let mut failures = Vec::new();
        for (place, message) in messages.iter().enumerate() {
            let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
            let payload = String::from_utf8_lossy(message.payload()).into_owned();
            if let Some(kind) = (self.picky.rule)(&key, &payload) {
                failures.push((place, TransportError::new(kind, "the test refuses it")));
                continue;
            }
            if let Err(error) = self.memory.publish(std::slice::from_ref(message)).await {
                let first = error.first();
                failures.push((place, TransportError::new(first.kind(), first.to_string())));
                continue;
            }
            let id = message
                .headers()
                .get_str(header::MESSAGE_ID)
                .unwrap_or_default()
                .to_owned();
            self.picky.taken.lock().unwrap().push(Taken {
                destination: message.destination().to_owned(),
                key,
                payload,
                id,
                at: tokio::time::Instant::now(),
            });
        }
        PublishError::some(failures).map_or(Ok(()), Err)
    }
}

impl Connection for PickyConnection {
    type Publisher = PickyPublisher;

    fn publisher(&self) -> PickyPublisher {
        PickyPublisher {
            memory: self.memory.publisher(),
            picky: self.picky.clone(),
        }
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.memory.ping().await
    }

    async fn close(&self) {
        self.memory.close().await;
    }
}

impl Source for PickyQueue {
    type Connection = PickyConnection;
    type Fetch = MemoryFetch;
    type Settle = MemorySettle;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn open(&self, connection: &PickyConnection) -> Result<(MemoryFetch, MemorySettle), TransportError> {
        self.0.open(&connection.memory).await
    }
}

impl Broker for Picky {
    type Connection = PickyConnection;
    type Source = PickyQueue;

    fn label(&self) -> String {
        "picky".to_owned()
    }

    fn source(&self, name: &str) -> PickyQueue {
        PickyQueue(Queue::new(name))
    }

    async fn connect(&self) -> Result<PickyConnection, TransportError> {
        Ok(PickyConnection {
            memory: self.memory.connect().await?,
            picky: self.clone(),
        })
    }
}
