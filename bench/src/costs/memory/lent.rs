//! A transport that only reads the bytes of what is published: what it costs to make a reply, without what it costs to keep one.

use std::hint::black_box;

use ruststream::memory::{MemoryBroker, MemoryConnection, Queue};
use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Capabilities, Connection, Publish, PublishError, Source, TransportError};

/// The in-process broker for what comes in, and nobody for what goes out.
pub(super) struct Lent(pub(super) MemoryBroker);

pub(super) struct LentConnection(MemoryConnection);

pub(super) struct LentSource(Queue);

/// Reads what it is given.
#[derive(Clone)]
pub(super) struct Reader;

impl Publish for Reader {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        for message in messages {
            black_box((message.destination(), message.payload(), message.headers().len()));
        }
        Ok(())
    }
}

impl Broker for Lent {
    type Connection = LentConnection;
    type Source = LentSource;

    fn label(&self) -> String {
        "lent".to_owned()
    }

    fn source(&self, name: &str) -> LentSource {
        LentSource(Queue::new(name))
    }

    async fn connect(&self) -> Result<LentConnection, TransportError> {
        self.0.connect().await.map(LentConnection)
    }
}

impl Connection for LentConnection {
    type Publisher = Reader;

    fn publisher(&self) -> Reader {
        Reader
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.0.ping().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

impl Source for LentSource {
    type Connection = LentConnection;
    type Fetch = <Queue as Source>::Fetch;
    type Settle = <Queue as Source>::Settle;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn open(&self, connection: &LentConnection) -> Result<(Self::Fetch, Self::Settle), TransportError> {
        self.0.open(&connection.0).await
    }
}
