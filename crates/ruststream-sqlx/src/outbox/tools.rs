//! What people ask of an outbox: how far behind it is, and what it gave up.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ruststream::message::HeaderMap;
use ruststream::transport::TransportError;
use sqlx::Pool;

use super::OutboxDatabase;
use super::error::fault;
use super::records::{GivenUp, Which};
use super::relay::Status;
use crate::clock::from_millis;

/// How many rows one statement replays or purges.
const BATCH: u16 = 1000;

/// What waits in an outbox to be published, as of the moment it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// Records to be published now, those in a relay's hand and those that wait for their next attempt included.
    pub waiting: u64,
    /// Records whose delay has not passed.
    pub scheduled: u64,
    /// Records that were given up.
    pub parked: u64,
    /// How long ago the oldest of those that wait was written.
    pub oldest: Option<Duration>,
}

pub(super) async fn lag<DB: OutboxDatabase>(pool: &Pool<DB>) -> Result<Lag, TransportError> {
    let mut connection = pool.acquire().await.map_err(fault)?;
    let waiting = DB::waiting(&mut connection).await.map_err(fault)?;
    Ok(Lag {
        waiting: waiting.ready.unsigned_abs(),
        scheduled: waiting.scheduled.unsigned_abs(),
        parked: waiting.parked.unsigned_abs(),
        oldest: waiting
            .oldest
            .map(|millis| Duration::from_millis(millis.max(0).unsigned_abs())),
    })
}

/// The records that a relay gave up after their attempts: to list, replay and purge. Made by [`Outbox::parked`](super::Outbox::parked).
///
/// # Examples
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// # async fn example(outbox: ruststream_sqlx::Outbox<sqlx::Sqlite>) -> Result<(), ruststream::transport::TransportError> {
/// for record in outbox.parked().list(0, 100).await? {
///     println!("{} to {}: {}", record.id, record.destination, record.error);
/// }
/// outbox.parked().replay_all().await?;
/// # Ok(()) }
/// ```
pub struct Parked<DB: OutboxDatabase> {
    pool: Pool<DB>,
    status: Arc<Status>,
    keep_attempts: bool,
}

/// A record that was given up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParkedRecord {
    /// Its id, rising in the order of writing.
    pub id: i64,
    /// Where it was to go.
    pub destination: String,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers; `message-id` among them.
    pub headers: HeaderMap,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// How many attempts have failed.
    pub attempts: u32,
    /// What the last of them failed with.
    pub error: String,
    /// When it was written, by the database's clock.
    pub written_at: SystemTime,
    /// When it was given up, by the database's clock.
    pub parked_at: SystemTime,
}

impl<DB: OutboxDatabase> Parked<DB> {
    pub(super) fn new(pool: Pool<DB>, status: Arc<Status>) -> Self {
        Self {
            pool,
            status,
            keep_attempts: false,
        }
    }

    /// Makes replays keep the attempts that were made: each record then has one more, and is parked again if it fails.
    #[must_use]
    pub fn keep_attempts(mut self) -> Self {
        self.keep_attempts = true;
        self
    }

    /// Parked records in the order of writing: those with an id above `after`, `limit` at most.
    ///
    /// # Errors
    ///
    /// Where the database cannot be read.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list(&self, after: i64, limit: usize) -> Result<Vec<ParkedRecord>, TransportError> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = DB::given_up(&mut connection, after, limit).await.map_err(fault)?;
        Ok(rows.into_iter().map(shown).collect())
    }

    /// Has these records published again, before what was written after them. Answers how many were parked.
    ///
    /// # Errors
    ///
    /// Where the database refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, some may be replayed.
    pub async fn replay(&self, ids: &[i64]) -> Result<u64, TransportError> {
        self.change(Which::Ids(ids.to_vec()), true).await
    }

    /// As [`replay`](Self::replay), all that are parked, in bounded batches.
    ///
    /// # Errors
    ///
    /// Where the database refuses; some may be replayed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, some may be replayed.
    pub async fn replay_all(&self) -> Result<u64, TransportError> {
        self.change_all(true).await
    }

    /// Deletes these records, if they are parked. Answers how many were.
    ///
    /// # Errors
    ///
    /// Where the database refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, some may be deleted.
    pub async fn purge(&self, ids: &[i64]) -> Result<u64, TransportError> {
        self.change(Which::Ids(ids.to_vec()), false).await
    }

    /// Deletes all that are parked, in bounded batches.
    ///
    /// # Errors
    ///
    /// Where the database refuses; some may be deleted.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, some may be deleted.
    pub async fn purge_all(&self) -> Result<u64, TransportError> {
        self.change_all(false).await
    }

    async fn change(&self, which: Which, replay: bool) -> Result<u64, TransportError> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let changed = if replay {
            DB::replay(&mut connection, &which, self.keep_attempts).await
        } else {
            DB::purge(&mut connection, &which).await
        };
        self.status.wake();
        changed.map_err(fault)
    }

    async fn change_all(&self, replay: bool) -> Result<u64, TransportError> {
        let mut all = 0;
        loop {
            let changed = self.change(Which::Some(i64::from(BATCH)), replay).await?;
            all += changed;
            if changed < u64::from(BATCH) {
                return Ok(all);
            }
        }
    }
}

fn shown(given_up: GivenUp) -> ParkedRecord {
    let GivenUp {
        record,
        error,
        written_at,
        parked_at,
    } = given_up;
    ParkedRecord {
        id: record.id,
        destination: record.destination,
        key: record.key,
        headers: HeaderMap::from_block(&record.headers).unwrap_or_default(),
        payload: record.payload,
        attempts: record.attempts,
        error,
        written_at: from_millis(written_at),
        parked_at: from_millis(parked_at),
    }
}

impl<DB: OutboxDatabase> fmt::Debug for Parked<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked")
            .field("database", &DB::NAME)
            .finish_non_exhaustive()
    }
}
