//! What halves, publishers and tools ask of a database: the seam behind which databases differ.

use std::any::Any;
use std::sync::Arc;
use std::time::SystemTime;

use ruststream::message::HeaderMap;
use ruststream::transport::{DeadLetter, DeadReason};
use tokio::sync::oneshot;

use crate::dead_letters::{DeadMessage, QueueCounts};
use crate::error::Failure;
use crate::table::{Decode, TableAnswer, TableWork};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Failure>>;

/// One thing to do on a database.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Lease what is due. Answered when there is something.
    Claim(Claim),
    /// Forget a claim that still waits; answered when no rows will be claimed for it any more.
    Cancel { subscription: u64, reply: Reply<()> },
    /// Give back receipts.
    Settle(Settlement),
    /// Store messages.
    Insert(Insert),
    /// Extend leases.
    Renew(Renewal),
    /// Make ready what a subscription needs beside the table.
    Open(Opening),
    /// Tell other processes of queues that have something new.
    Tell {
        #[cfg_attr(
            not(any(feature = "postgres", feature = "mysql")),
            allow(dead_code, reason = "of servers alone")
        )]
        queues: Vec<Arc<str>>,
    },
    /// Delete what was kept for long enough.
    Prune(Pruning),
    /// One statement on dead letters; answered with the ids of the rows it changed.
    Administer(Administration),
    /// Read dead letters.
    Letters(Letters),
    /// Count the messages of a queue.
    Count { queue: Arc<str>, reply: Reply<QueueCounts> },
    /// One thing to do on a table of the user's own.
    Table(TableWork, Reply<TableAnswer>),
    /// Make one trivial round trip.
    Ping { reply: Reply<()> },
    /// End, after what came before.
    Close { reply: Reply<()> },
    /// Panics, to test what follows.
    #[cfg(test)]
    Panic,
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) subscription: u64,
    pub(crate) queue: Arc<str>,
    pub(crate) room: usize,
    /// Milliseconds.
    pub(crate) lease: i64,
    /// What the rows will be leased under.
    pub(crate) token: i64,
    pub(crate) choice: Choice,
    /// The queue whose messages are given to its groups first; `queue` is the place of one of them.
    pub(crate) shared: Option<Arc<str>>,
    pub(crate) reply: Reply<Claimed>,
}

/// Which of the rows that are due are taken, and in which order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Of the rows of a key, the first alone, and none while one is in hand anywhere.
    pub(crate) fifo: bool,
    /// Those with a priority first.
    pub(crate) priority: bool,
}

/// What a subscription needs beside the table.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) needs: Needs,
    pub(crate) reply: Reply<()>,
}

#[derive(Debug, Clone)]
pub(crate) struct Needs {
    pub(crate) choice: Choice,
    /// A queue, one of its groups, and the place of that group.
    pub(crate) group: Option<(Arc<str>, Arc<str>, Arc<str>)>,
    /// Whether missing indexes are made.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        allow(dead_code, reason = "of servers alone")
    )]
    pub(crate) make: bool,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Needs {
    /// What to say of indexes that are not there and not to be made.
    pub(crate) fn check(database: &str, missing: &[&str]) -> Result<(), Failure> {
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::new(
            ruststream::transport::ErrorKind::Incompatible,
            format!(
                "{database} lacks what this subscription needs: run {:?}, or let the crate do it with `.migrate(true)`",
                missing.join("; ")
            ),
        ))
    }
}

/// Answers, or writes down what no one waits for: the next time is soon.
pub(crate) fn answer_pruning(queue: &str, done: Result<u64, Failure>, reply: Option<Reply<u64>>) {
    match (reply, done) {
        (Some(reply), done) => drop(reply.send(done)),
        (None, Err(failure)) => {
            let error = ruststream::transport::TransportError::from(failure);
            tracing::warn!(queue, %error, "what was kept long enough could not be deleted");
        }
        (None, Ok(_)) => {}
    }
}

/// Deletes rows of a queue that are kept for longer than they should be, in batches; answers how many there were.
#[derive(Debug)]
pub(crate) struct Pruning {
    pub(crate) batch: PruneBatch,
    pub(crate) reply: Option<Reply<u64>>,
}

#[derive(Debug, Clone)]
pub(crate) struct PruneBatch {
    pub(crate) queue: Arc<str>,
    /// For how many milliseconds dead letters stay; for ever unless set.
    pub(crate) keep_dead: Option<i64>,
    pub(crate) limit: i64,
}

/// Rows leased together, under one token.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) token: i64,
    pub(crate) rows: Vec<ClaimedRow>,
}

#[derive(Debug)]
pub(crate) struct ClaimedRow {
    pub(crate) id: i64,
    pub(crate) attempt: u32,
    /// The lease before this one ran out.
    pub(crate) unfinished: bool,
    pub(crate) published_at: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Vec<u8>,
    /// The row as the driver has it, and what makes its struct, where it is one of the user's own table.
    pub(crate) raw: Option<(RawRow, Decode)>,
}

/// A row as the driver has it.
pub(crate) type RawRow = Arc<dyn Any + Send + Sync>;

/// Rows as a claim reads them: those that can be handed out, and those whose headers cannot be decoded.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) rows: Vec<ClaimedRow>,
    undecodable: Vec<(ClaimedRow, String)>,
}

impl Decoded {
    /// Takes a row with its headers as they are stored.
    pub(crate) fn take(&mut self, mut row: ClaimedRow, headers: Option<&[u8]>) {
        match headers.map(HeaderMap::from_block).transpose() {
            Ok(headers) => {
                row.headers = headers.unwrap_or_default();
                self.rows.push(row);
            }
            Err(error) => self.undecodable.push((row, error.to_string())),
        }
    }

    /// True if no row came at all.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.undecodable.is_empty()
    }

    /// What makes dead letters of the rows that cannot be handed out; nothing where there are none.
    pub(crate) fn give_up(&mut self, queue: &Arc<str>, token: i64, at: SystemTime) -> Vec<Part> {
        let dead = |(row, error): (ClaimedRow, String)| {
            tracing::warn!(%queue, id = row.id, error, "a message became a dead letter");
            Part::Dead {
                id: row.id,
                token,
                letter: Box::new(DeadLetter {
                    reason: DeadReason::Undecodable,
                    error,
                    attempts: row.attempt,
                    source: queue.to_string(),
                    at,
                }),
            }
        };
        self.undecodable.drain(..).map(dead).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) queue: Arc<str>,
    pub(crate) parts: Vec<Part>,
    /// Whether an ack lets other rows of the queue be claimed.
    pub(crate) frees: bool,
    pub(crate) reply: Option<Reply<SettleAnswer>>,
}

/// What one statement settles.
#[derive(Debug)]
pub(crate) enum Part {
    Ack {
        token: i64,
        ids: Vec<i64>,
        /// The ids ascend, and no other row between the first and the last bears the token.
        dense: bool,
    },
    /// An ack whose rows stay for so many milliseconds, as done.
    Keep {
        token: i64,
        ids: Vec<i64>,
        keep: i64,
    },
    /// An ack that stores replies, unless it comes too late.
    Answer(Answered),
    /// Not attempted, and to be left alone for so long.
    Defer(Vec<RetryRow>),
    Release {
        token: i64,
        ids: Vec<i64>,
    },
    Return {
        id: i64,
        token: i64,
        attempts: u32,
    },
    Retry(Vec<RetryRow>),
    Dead {
        id: i64,
        token: i64,
        letter: Box<DeadLetter>,
    },
}

#[derive(Debug)]
pub(crate) struct RetryRow {
    pub(crate) id: i64,
    pub(crate) token: i64,
    /// Milliseconds.
    pub(crate) after: i64,
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) id: i64,
    pub(crate) token: i64,
    /// For how many milliseconds the row stays as done.
    pub(crate) keep: Option<i64>,
    pub(crate) replies: Arc<[NewRow]>,
}

#[cfg(feature = "sqlite")]
impl Part {
    /// How many rows it settles unless some are stale.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ack { ids, .. } | Self::Keep { ids, .. } | Self::Release { ids, .. } => ids.len(),
            Self::Retry(rows) | Self::Defer(rows) => rows.len(),
            Self::Return { .. } | Self::Dead { .. } | Self::Answer(_) => 1,
        }
    }

    /// Its rows: ids with their tokens.
    pub(crate) fn rows(&self) -> Vec<(i64, i64)> {
        match self {
            Self::Ack { ids, token, .. } | Self::Keep { ids, token, .. } | Self::Release { ids, token } => {
                ids.iter().map(|id| (*id, *token)).collect()
            }
            Self::Answer(row) => vec![(row.id, row.token)],
            Self::Retry(rows) | Self::Defer(rows) => rows.iter().map(|row| (row.id, row.token)).collect(),
            Self::Return { id, token, .. } | Self::Dead { id, token, .. } => vec![(*id, *token)],
        }
    }

    /// After how many milliseconds a row of it is due again, if one is.
    pub(crate) fn due_after(&self) -> Option<i64> {
        match self {
            Self::Release { .. } | Self::Return { .. } => Some(0),
            Self::Retry(rows) | Self::Defer(rows) => rows.iter().map(|row| row.after).min(),
            Self::Ack { .. } | Self::Keep { .. } | Self::Answer(_) | Self::Dead { .. } => None,
        }
    }
}

/// What became of a settlement.
#[derive(Debug, Default)]
pub(crate) struct SettleAnswer {
    pub(crate) stale: usize,
    /// The rows that did not come through, ids with their tokens, and why the first did not.
    pub(crate) failed: Vec<(i64, i64)>,
    pub(crate) failure: Option<Failure>,
}

#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) rows: Vec<NewRow>,
    pub(crate) reply: Reply<Inserted>,
}

/// What became of rows that were to be stored, by their places.
#[derive(Debug, Default)]
pub(crate) struct Inserted {
    pub(crate) failed: Vec<(usize, Failure)>,
    /// Those whose unique key was there.
    pub(crate) duplicates: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct NewRow {
    pub(crate) queue: Arc<str>,
    /// Milliseconds.
    pub(crate) delay: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Option<Vec<u8>>,
    pub(crate) payload: Vec<u8>,
    /// What few rows have.
    pub(crate) extras: Option<Box<Extras>>,
}

/// What few rows have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Milliseconds since 1970, in place of the delay.
    pub(crate) run_at: Option<i64>,
    pub(crate) priority: u16,
    pub(crate) unique: Option<String>,
}

impl NewRow {
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn unique(&self) -> Option<&str> {
        self.extras.as_ref()?.unique.as_deref()
    }

    /// Whether it may be due at once.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_immediate(&self) -> bool {
        self.delay == 0 && self.extras.as_ref().is_none_or(|extras| extras.run_at.is_none())
    }
}

#[derive(Debug)]
pub(crate) struct Renewal {
    /// Ids with their tokens.
    pub(crate) rows: Vec<(i64, i64)>,
    /// Milliseconds.
    pub(crate) lease: i64,
    pub(crate) reply: Reply<Vec<LostRow>>,
}

/// A row whose lease could not be renewed.
#[derive(Debug)]
pub(crate) struct LostRow {
    pub(crate) id: i64,
    pub(crate) token: i64,
    /// The row is not there any more; otherwise its lease belongs to someone else.
    pub(crate) gone: bool,
}

/// Which dead letters to read.
#[derive(Debug)]
pub(crate) struct Letters {
    pub(crate) which: Which,
    pub(crate) reply: Reply<Vec<DeadMessage>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Which {
    /// Those of a queue with an id above `after`, ascending, at most `limit`.
    Of { queue: Arc<str>, after: i64, limit: i64 },
    /// The one of this id.
    One { id: i64 },
}

#[derive(Debug)]
pub(crate) struct Administration {
    pub(crate) what: Administer,
    pub(crate) reply: Reply<Vec<i64>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Administer {
    /// Make a dead letter ready again, its attempts counted from the start or from where they were.
    Replay { id: i64, kept: bool },
    /// Make dead letters of a queue ready again: those with an id above `after`, ascending, at most `limit`.
    ReplayQueue { queue: Arc<str>, after: i64, limit: i64 },
    /// Delete a dead letter.
    Purge { id: i64 },
    /// Delete dead letters of a queue: those with an id above `after`, ascending, at most `limit`.
    PurgeQueue { queue: Arc<str>, after: i64, limit: i64 },
}
