//! A live connection to a database.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Connection, ErrorKind, TransportError};

use crate::dead_letters::{DeadLetters, QueueCounts};
use crate::engine::Engine;
use crate::operation::Operation;
use crate::publish::SqlxPublisher;
use crate::table::{Layout, Wanted, routed};

/// How long [`Connection::close`] waits for what was sent last.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// A live connection to one database.
///
/// # Examples
///
/// ```
/// use ruststream::transport::{Broker, Connection};
/// use ruststream_sqlx::SqlxBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("orders.db");
/// let connection = SqlxBroker::sqlite(path).connect().await?;
/// connection.ping().await?;
/// assert_eq!(connection.queue_counts("orders").await?.ready, 0);
/// connection.close().await;
/// # Ok(())
/// # }
/// ```
pub struct SqlxConnection {
    engine: Engine,
    max_payload: usize,
    /// The tables of the user's own that names lead to.
    routes: Routes,
}

/// Names, and the tables that they lead to.
pub(crate) type Routes = Arc<HashMap<String, Arc<Layout>>>;

/// What a connection has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transactions, statements that stand alone included.
    pub transactions: u64,
    /// Claims that were run.
    pub claims: u64,
    /// Claims that found nothing.
    pub empty_claims: u64,
    /// Looks whether another process wrote.
    pub polls: u64,
    /// Times a transaction was tried again, since others held what it needed.
    pub busy_retries: u64,
    /// Times that the file was opened, or a connection to the server made.
    pub opened: u64,
}

impl SqlxConnection {
    pub(crate) async fn open(
        engine: Engine,
        max_payload: usize,
        tables: &[(String, Wanted)],
    ) -> Result<Self, TransportError> {
        let routes = Arc::new(routed(&engine, tables).await?);
        Ok(Self {
            engine,
            max_payload,
            routes,
        })
    }

    /// Whether names lead to tables of the user's own.
    pub(crate) fn routes(&self) -> bool {
        !self.routes.is_empty()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// The dead letters, to list, show, replay and purge.
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters::new(self)
    }

    /// Counts the messages of a queue. It walks through all of them, so it is for people and dashboards, not for a hot path.
    ///
    /// # Errors
    ///
    /// Where the database cannot be read.
    pub async fn queue_counts(&self, queue: &str) -> Result<QueueCounts, TransportError> {
        let queue = Arc::from(queue);
        Ok(self.engine.ask(|reply| Operation::Count { queue, reply }).await?)
    }

    /// What it has done since the connection was opened.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }
}

impl Connection for SqlxConnection {
    type Publisher = SqlxPublisher;

    fn publisher(&self) -> SqlxPublisher {
        SqlxPublisher::new(self.engine.clone(), self.max_payload, Arc::clone(&self.routes))
    }

    async fn ping(&self) -> Result<(), TransportError> {
        Ok(self.engine.ask(|reply| Operation::Ping { reply }).await?)
    }

    async fn close(&self) {
        if tokio::time::timeout(CLOSE_DEADLINE, self.engine.close()).await.is_err() {
            let late = TransportError::new(
                ErrorKind::Timeout,
                format!("{} did not close within {CLOSE_DEADLINE:?}", self.engine.label()),
            );
            tracing::warn!(error = %late, "a connection was left to close by itself");
        }
    }
}

impl fmt::Debug for SqlxConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxConnection")
            .field("database", &self.engine.label())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
