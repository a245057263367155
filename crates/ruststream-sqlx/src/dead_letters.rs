//! Dead letters: to list, show, replay and purge.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use ruststream::message::HeaderMap;
use ruststream::transport::TransportError;

use crate::connection::SqlxConnection;
use crate::operation::{Administer, Administration, Letters, Operation, Which};

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
    /// Where the database cannot be read.
    pub async fn list(&self, queue: &str, limit: usize) -> Result<Vec<DeadMessage>, TransportError> {
        let which = Which::Of {
            queue: Arc::from(queue),
            after: i64::MIN,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        };
        self.letters(which).await
    }

    /// The dead letter of this id.
    ///
    /// # Errors
    ///
    /// Where the database cannot be read.
    pub async fn show(&self, id: i64) -> Result<Option<DeadMessage>, TransportError> {
        Ok(self.letters(Which::One { id }).await?.pop())
    }

    /// Makes a dead letter ready again, its attempts counted from the start. False where there is no such dead letter.
    ///
    /// # Errors
    ///
    /// Where the database cannot be written.
    pub async fn replay(&self, id: i64) -> Result<bool, TransportError> {
        Ok(!self
            .administer(Administer::Replay { id, kept: false })
            .await?
            .is_empty())
    }

    /// Makes every dead letter of a queue ready again, oldest first, and answers how many there were.
    ///
    /// # Errors
    ///
    /// Where the database cannot be written; some may be ready by then.
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
    /// Where the database cannot be written.
    pub async fn purge(&self, id: i64) -> Result<bool, TransportError> {
        Ok(!self.administer(Administer::Purge { id }).await?.is_empty())
    }

    /// Deletes every dead letter of a queue, and answers how many there were.
    ///
    /// # Errors
    ///
    /// Where the database cannot be written; some may be deleted by then.
    pub async fn purge_queue(&self, queue: &str) -> Result<u64, TransportError> {
        let queue: Arc<str> = Arc::from(queue);
        self.in_batches(|after| Administer::PurgeQueue {
            queue: Arc::clone(&queue),
            after,
            limit: BATCH,
        })
        .await
    }

    async fn letters(&self, which: Which) -> Result<Vec<DeadMessage>, TransportError> {
        let ask = |reply| Operation::Letters(Letters { which, reply });
        Ok(self.connection.engine().ask(ask).await?)
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
            .engine()
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
