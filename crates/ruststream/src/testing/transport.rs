//! The transport that stands in for each broker of an app under test: the in-process one, with all publishes written down.

use std::sync::Arc;

use super::journal::{By, Journal};
use crate::memory::{MemoryBroker, MemoryConnection, MemoryFetch, MemoryPublisher, MemorySettle, Queue};
use crate::message::Outgoing;
use crate::transport::{Broker, Capabilities, Connection, Publish, PublishError, Source, TransportError};

/// Stands in for one broker of the app.
#[derive(Clone)]
pub(super) struct StandIn {
    pub(super) label: String,
    pub(super) number: usize,
    pub(super) memory: MemoryBroker,
    pub(super) journal: Arc<Journal>,
}

impl StandIn {
    /// A publisher whose messages count as the test's own.
    pub(super) fn publisher_of_the_test(&self) -> Recording {
        self.recording(self.memory.publisher(), By::Test)
    }

    fn recording(&self, inner: MemoryPublisher, by: By) -> Recording {
        Recording {
            inner,
            journal: self.journal.clone(),
            broker: self.number,
            by,
        }
    }
}

impl Broker for StandIn {
    type Connection = StandInConnection;
    type Source = StandInSource;

    fn label(&self) -> String {
        self.label.clone()
    }

    fn source(&self, name: &str) -> StandInSource {
        StandInSource(self.memory.source(name))
    }

    fn reply_source(&self, name: &str) -> StandInSource {
        StandInSource(self.memory.reply_source(name))
    }

    async fn connect(&self) -> Result<StandInConnection, TransportError> {
        Ok(StandInConnection {
            memory: self.memory.connect().await?,
            stand_in: self.clone(),
        })
    }
}

pub(super) struct StandInConnection {
    memory: MemoryConnection,
    stand_in: StandIn,
}

impl Connection for StandInConnection {
    type Publisher = Recording;

    fn publisher(&self) -> Recording {
        self.stand_in.recording(self.memory.publisher(), By::App)
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.memory.ping().await
    }

    async fn close(&self) {
        self.memory.close().await;
    }
}

pub(super) struct StandInSource(pub(super) Queue);

impl Source for StandInSource {
    type Connection = StandInConnection;
    type Fetch = MemoryFetch;
    type Settle = MemorySettle;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn open(&self, connection: &StandInConnection) -> Result<(MemoryFetch, MemorySettle), TransportError> {
        self.0.open(&connection.memory).await
    }
}

/// Publishes, and writes down what.
#[derive(Clone)]
pub(super) struct Recording {
    inner: MemoryPublisher,
    journal: Arc<Journal>,
    broker: usize,
    by: By,
}

impl Publish for Recording {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let flight = self.journal.publishing(self.broker, self.by, messages);
        let result = self.inner.publish(messages).await;
        flight.landed(&result);
        result
    }
}
