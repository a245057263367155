//! What halves, publishers and tools ask of the writer.

use std::sync::Arc;

use ruststream::message::HeaderMap;
use ruststream::transport::DeadLetter;
use tokio::sync::oneshot;

use crate::error::Failure;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Failure>>;

/// One thing to do on the file.
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
    /// One statement on dead letters; answered with the ids of the rows it changed.
    Administer(Administration),
    /// Read one value from the file.
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
    pub(crate) reply: Reply<Claimed>,
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
}

#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) queue: Arc<str>,
    pub(crate) parts: Vec<Part>,
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

impl Part {
    /// How many rows it settles unless some are stale.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ack { ids, .. } | Self::Release { ids, .. } => ids.len(),
            Self::Retry(rows) => rows.len(),
            Self::Return { .. } | Self::Dead { .. } => 1,
        }
    }

    /// After how many milliseconds a row of it is due again, if one is.
    pub(crate) fn due_after(&self) -> Option<i64> {
        match self {
            Self::Release { .. } | Self::Return { .. } => Some(0),
            Self::Retry(rows) => rows.iter().map(|row| row.after).min(),
            Self::Ack { .. } | Self::Dead { .. } => None,
        }
    }
}

/// What became of the parts of a settlement.
#[derive(Debug, Default)]
pub(crate) struct SettleAnswer {
    pub(crate) stale: usize,
    /// The parts that did not come through, ascending, and why the first did not.
    pub(crate) failed: Vec<usize>,
    pub(crate) failure: Option<Failure>,
}

#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) rows: Vec<NewRow>,
    pub(crate) reply: Reply<Vec<(usize, Failure)>>,
}

#[derive(Debug)]
pub(crate) struct NewRow {
    pub(crate) queue: Arc<str>,
    /// Milliseconds.
    pub(crate) delay: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Option<Vec<u8>>,
    pub(crate) payload: Vec<u8>,
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

#[derive(Debug)]
pub(crate) struct Administration {
    pub(crate) what: Administer,
    pub(crate) reply: Reply<Vec<i64>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Administer {
    /// Make a dead letter ready again.
    Replay { id: i64 },
    /// Make dead letters of a queue ready again: those with an id above `after`, ascending, at most `limit`.
    ReplayQueue { queue: Arc<str>, after: i64, limit: i64 },
    /// Delete a dead letter.
    Purge { id: i64 },
    /// Delete dead letters of a queue: those with an id above `after`, ascending, at most `limit`.
    PurgeQueue { queue: Arc<str>, after: i64, limit: i64 },
}
