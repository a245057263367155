//! The transport that stands in for each broker of an app under test: the in-process one, with all publishes written down.

use std::sync::Arc;

use super::journal::{By, Journal};
use crate::memory::{MemoryBroker, MemoryConnection, MemoryFetch, MemoryPublisher, MemorySettle, Queue, StandInFields};
use crate::message::{OptionSet, Outgoing};
use crate::transport::{Broker, Capabilities, Connection, Publish, PublishError, Routes, Source, TransportError};

/// Stands in for one broker of the app.
#[derive(Clone)]
pub(super) struct StandIn {
    pub(super) label: String,
    pub(super) number: usize,
    pub(super) memory: MemoryBroker,
    pub(super) journal: Arc<Journal>,
    pub(super) routes: Option<Arc<dyn Routes>>,
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
            routes: self.routes.clone(),
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
    routes: Option<Arc<dyn Routes>>,
    broker: usize,
    by: By,
}

impl Recording {
    /// Publishes to where the server would lead the messages.
    async fn publish_by(&self, routes: &dyn Routes, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let mut failures = Vec::new();
        let mut led = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            match routes.route(message) {
                Ok(goes) => {
                    let mut options: OptionSet = message.option_set().clone();
                    if let Some(fields) = routes.fields(message) {
                        options.insert(StandInFields(fields));
                    }
                    led.push((position, goes, options));
                }
                Err(error) => failures.push((position, error)),
            }
        }
        let mut positions = Vec::new();
        let mut copies = Vec::new();
        for (position, goes, options) in &led {
            let message = &messages[*position];
            for queue in &goes.queues {
                let copy = Outgoing::new(queue, message.payload())
                    .with_headers(goes.headers.as_ref().unwrap_or(message.headers()))
                    .with_delay(message.delay())
                    .with_options(options);
                positions.push(*position);
                copies.push(match message.key() {
                    Some(key) => copy.with_key(key),
                    None => copy,
                });
            }
        }
        if let Err(error) = self.inner.publish(&copies).await {
            let refused = positions.iter().enumerate();
            failures.extend(refused.filter_map(|(place, position)| {
                let error = error.for_message(place)?;
                Some((*position, TransportError::new(error.kind(), error.to_string())))
            }));
            failures.sort_by_key(|(position, _)| *position);
            failures.dedup_by_key(|(position, _)| *position);
        }
        PublishError::some(failures).map_or(Ok(()), Err)
    }
}

impl Publish for Recording {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let flight = self.journal.publishing(self.broker, self.by, messages);
        let result = match &self.routes {
            None => self.inner.publish(messages).await,
            Some(routes) => self.publish_by(&**routes, messages).await,
        };
        flight.landed(&result);
        result
    }
}
