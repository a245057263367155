//! Dead letters: to list, show, replay and purge.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use ruststream::message::HeaderMap;
use ruststream::transport::{ErrorKind, TransportError};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Row};

use crate::clock::from_millis;
use crate::connection::SqlxConnection;
use crate::operation::{Administer, Administration, Operation};
use crate::sqlite::statements;

/// How many rows a replay or purge changes in one transaction, so that others get their turn.
const BATCH: i64 = 500;

/// The dead letters of a database.
///
/// # Examples
///
/// ```
/// # use ruststream::transport::{Broker, TransportError};
/// # use ruststream_sqlx::SqlxBroker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let connection = SqlxBroker::sqlite(directory.path().join("orders.db")).connect().await?;
/// for letter in connection.dead_letters().list("orders", 20).await? {
///     println!("{}: {} after {} attempts: {}", letter.id, letter.reason, letter.attempts, letter.error);
/// }
/// let again = connection.dead_letters().replay_queue("orders").await?;
/// assert_eq!(again, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct DeadLetters<'a> {
    connection: &'a SqlxConnection,
}

/// A dead letter: the message as it was published, and its history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadMessage {
    /// The id of its row.
    pub id: i64,
    /// The queue that it was in.
    pub queue: String,
    /// Why it was given up: a word of [`DeadReason`](ruststream::transport::DeadReason).
    pub reason: String,
    /// The text of the last error.
    pub error: String,
    /// How often it was handed to its handler.
    pub attempts: u32,
    /// The name of the subscription that gave it up.
    pub source: String,
    /// When it was given up.
    pub dead_at: SystemTime,
    /// When it was published.
    pub published_at: SystemTime,
    /// The key that it was published with.
    pub key: Option<Vec<u8>>,
    /// Its headers; empty where they cannot be decoded.
    pub headers: HeaderMap,
    /// Its headers as they are stored, also where they cannot be decoded.
    pub header_block: Vec<u8>,
    /// Its payload, byte for byte.
    pub payload: Vec<u8>,
}

/// How many messages a queue has, by what can be done with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// To be handed out now.
    pub ready: u64,
    /// In someone's hands.
    pub leased: u64,
    /// To be handed out later: delayed, or waiting for a retry.
    pub scheduled: u64,
    /// Given up.
    pub dead: u64,
}

impl<'a> DeadLetters<'a> {
    pub(crate) fn new(connection: &'a SqlxConnection) -> Self {
        Self { connection }
    }

    /// The oldest dead letters of a queue, at most `limit`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read.
    pub async fn list(&self, queue: &str, limit: usize) -> Result<Vec<DeadMessage>, TransportError> {
        let arguments = arguments(|values| {
            values.add(queue)?;
            values.add(i64::try_from(limit).unwrap_or(i64::MAX))
        })?;
        let rows = self.connection.read(statements::DEAD_LIST, arguments).await?;
        rows.iter().map(decode).collect()
    }

    /// The dead letter of this id.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read.
    pub async fn show(&self, id: i64) -> Result<Option<DeadMessage>, TransportError> {
        let arguments = arguments(|values| values.add(id))?;
        let rows = self.connection.read(statements::DEAD_SHOW, arguments).await?;
        rows.first().map(decode).transpose()
    }

    /// Makes a dead letter ready again, its attempts counted from the start. False where there is no such dead letter.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub async fn replay(&self, id: i64) -> Result<bool, TransportError> {
        Ok(!self.administer(Administer::Replay { id }).await?.is_empty())
    }

    /// Makes every dead letter of a queue ready again, oldest first, and answers how many there were.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written; some may be ready by then.
    pub async fn replay_queue(&self, queue: &str) -> Result<u64, TransportError> {
        let queue: Arc<str> = Arc::from(queue);
        self.in_batches(|after| Administer::ReplayQueue {
            queue: Arc::clone(&queue),
            after,
            limit: BATCH,
        })
        .await
    }

    /// Deletes a dead letter. False where there is no such dead letter.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub async fn purge(&self, id: i64) -> Result<bool, TransportError> {
        Ok(!self.administer(Administer::Purge { id }).await?.is_empty())
    }

    /// Deletes every dead letter of a queue, and answers how many there were.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written; some may be deleted by then.
    pub async fn purge_queue(&self, queue: &str) -> Result<u64, TransportError> {
        let queue: Arc<str> = Arc::from(queue);
        self.in_batches(|after| Administer::PurgeQueue {
            queue: Arc::clone(&queue),
            after,
            limit: BATCH,
        })
        .await
    }

    /// Goes through the ids in one direction, so that a letter which dies again meanwhile is not met twice.
    async fn in_batches(&self, what: impl Fn(i64) -> Administer) -> Result<u64, TransportError> {
        let mut total = 0;
        let mut after = i64::MIN;
        loop {
            let changed = self.administer(what(after)).await?;
            total += changed.len() as u64;
            match changed.iter().max() {
                Some(last) => after = *last,
                None => return Ok(total),
            }
        }
    }

    async fn administer(&self, what: Administer) -> Result<Vec<i64>, TransportError> {
        let changed = self
            .connection
            .writer()
            .ask(|reply| Operation::Administer(Administration { what, reply }))
            .await?;
        Ok(changed)
    }
}

impl fmt::Debug for DeadLetters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").finish_non_exhaustive()
    }
}

pub(crate) async fn queue_counts(connection: &SqlxConnection, queue: &str) -> Result<QueueCounts, TransportError> {
    let now = connection.settings().clock.now();
    let arguments = arguments(|values| {
        for _ in 0..3 {
            values.add(now)?;
        }
        values.add(queue)?;
        values.add(queue)
    })?;
    let rows = connection.read(statements::COUNTS, arguments).await?;
    let row = rows
        .first()
        .ok_or_else(|| unreadable("a count answered without a row"))?;
    let count = |index: usize| -> Result<u64, TransportError> {
        let count: i64 = row.try_get(index).map_err(|error| unreadable(error.to_string()))?;
        Ok(count.max(0).cast_unsigned())
    };
    Ok(QueueCounts {
        ready: count(0)?,
        leased: count(1)?,
        scheduled: count(2)?,
        dead: count(3)?,
    })
}

fn arguments(
    fill: impl FnOnce(&mut SqliteArguments) -> Result<(), sqlx::error::BoxDynError>,
) -> Result<SqliteArguments, TransportError> {
    let mut arguments = SqliteArguments::default();
    fill(&mut arguments).map_err(|error| unreadable(error.to_string()))?;
    Ok(arguments)
}

fn unreadable(text: impl Into<String>) -> TransportError {
    TransportError::new(ErrorKind::Incompatible, text)
}

fn decode(row: &SqliteRow) -> Result<DeadMessage, TransportError> {
    let decoded = || -> Result<DeadMessage, sqlx::Error> {
        let header_block: Vec<u8> = row.try_get_unchecked::<Option<Vec<u8>>, _>(9)?.unwrap_or_default();
        let attempts: i64 = row.try_get(4)?;
        Ok(DeadMessage {
            id: row.try_get(0)?,
            queue: row.try_get(1)?,
            reason: row.try_get(2)?,
            error: row.try_get(3)?,
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            source: row.try_get(5)?,
            dead_at: from_millis(row.try_get(6)?),
            published_at: from_millis(row.try_get(7)?),
            key: row.try_get_unchecked(8)?,
            headers: HeaderMap::from_block(&header_block).unwrap_or_default(),
            header_block,
            payload: row.try_get_unchecked(10)?,
        })
    };
    decoded().map_err(|error| {
        TransportError::new(
            ErrorKind::Incompatible,
            format!("a dead letter cannot be read: {error}"),
        )
        .with_cause(error)
    })
}
