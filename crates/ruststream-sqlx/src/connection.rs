//! A live connection: one writer, and one reader on demand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Connection, ErrorKind, TransportError};
use sqlx::sqlite::{SqliteArguments, SqliteRow};

use crate::broker::Settings;
use crate::dead_letters::{DeadLetters, QueueCounts};
use crate::operation::Operation;
use crate::publish::SqlxPublisher;
use crate::sqlite::{Reader, WriterHandle};

/// How long [`Connection::close`] waits for the writer's last group.
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
    settings: Arc<Settings>,
    writer: WriterHandle,
    reader: Reader,
}

/// What a connection's writer has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transactions that were begun.
    pub transactions: u64,
    /// Claims that were run.
    pub claims: u64,
    /// Claims that found nothing.
    pub empty_claims: u64,
    /// Looks whether another process wrote to the file.
    pub polls: u64,
    /// Times a transaction waited for another writer of the file.
    pub busy_retries: u64,
    /// Times the file was opened.
    pub opened: u64,
}

impl SqlxConnection {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, TransportError> {
        let writer = WriterHandle::open(Arc::clone(&settings)).await?;
        Ok(Self {
            reader: Reader::new(Arc::clone(&settings)),
            writer,
            settings,
        })
    }

    pub(crate) fn writer(&self) -> &WriterHandle {
        &self.writer
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads rows, apart from the writer.
    pub(crate) async fn read(
        &self,
        sql: &'static str,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, TransportError> {
        self.writer.check_open()?;
        Ok(self.reader.rows(sql, arguments).await?)
    }

    /// The dead letters, to list, show, replay and purge.
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters::new(self)
    }

    /// Counts the messages of a queue. It walks through all of them, so it is for people and dashboards, not for a hot path.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read.
    pub async fn queue_counts(&self, queue: &str) -> Result<QueueCounts, TransportError> {
        crate::dead_letters::queue_counts(self, queue).await
    }

    /// What the writer has done since the connection was opened.
    pub fn statistics(&self) -> Statistics {
        self.writer.statistics()
    }
}

impl Connection for SqlxConnection {
    type Publisher = SqlxPublisher;

    fn publisher(&self) -> SqlxPublisher {
        SqlxPublisher::new(self.writer.clone(), &self.settings)
    }

    async fn ping(&self) -> Result<(), TransportError> {
        Ok(self.writer.ask(|reply| Operation::Ping { reply }).await?)
    }

    async fn close(&self) {
        let closing = async {
            self.writer.close().await;
            self.reader.close().await;
        };
        if tokio::time::timeout(CLOSE_DEADLINE, closing).await.is_err() {
            let late = TransportError::new(
                ErrorKind::Timeout,
                format!(
                    "{} did not close within {CLOSE_DEADLINE:?}",
                    self.settings.path.display()
                ),
            );
            tracing::warn!(error = %late, "a connection was left to close by itself");
        }
    }
}

impl fmt::Debug for SqlxConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxConnection")
            .field("path", &self.settings.path)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
