//! What travels between the outbox and its tables.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

/// The longest key that a record may have: what an index of every database takes.
pub(super) const LONGEST_KEY: usize = 500;

/// A message to be written.
#[derive(Debug, Clone)]
pub struct NewRecord {
    pub(crate) destination: Cow<'static, str>,
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// In milliseconds.
    pub(crate) delay: i64,
}

/// A record in a relay's hand.
#[derive(Debug, Clone)]
pub struct Record {
    pub(crate) id: i64,
    /// How many attempts at publishing it have failed.
    pub(crate) attempts: u32,
    pub(crate) destination: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// What a relay asks for.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub(crate) limit: i64,
    /// How long what is claimed is held, in milliseconds.
    pub(crate) lease: i64,
    pub(crate) token: i64,
    /// Whether the keys of parked records stand still.
    pub(crate) parked_stop: bool,
}

/// What became of the records that were claimed under one token.
#[derive(Debug, Default, Clone)]
pub struct Finished {
    pub(crate) token: i64,
    pub(crate) published: Vec<i64>,
    /// Those to be claimed again at once.
    pub(crate) released: Vec<i64>,
    pub(crate) failed: Vec<Failed>,
    /// Whether what is published stays for a while.
    pub(crate) keep: bool,
}

/// A record that could not be published.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) id: i64,
    pub(crate) attempts: u32,
    /// After how many milliseconds it is tried again; never where there is none.
    pub(crate) again: Option<i64>,
    pub(crate) error: String,
}

/// What waits.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub(crate) ready: i64,
    pub(crate) scheduled: i64,
    pub(crate) parked: i64,
    /// The age of the oldest, in milliseconds.
    pub(crate) oldest: Option<i64>,
}

/// A record that was given up.
#[derive(Debug, Clone)]
pub struct GivenUp {
    pub(crate) record: Record,
    pub(crate) error: String,
    pub(crate) written_at: i64,
    pub(crate) parked_at: i64,
}

/// Which of those that were given up.
#[derive(Debug, Clone)]
pub enum Which {
    Ids(Vec<i64>),
    /// So many of those there are.
    Some(i64),
}

/// A message that is tracked, to be recorded.
#[derive(Debug, Clone)]
pub struct NewTracked {
    pub(crate) id: String,
    pub(crate) destination: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// After how many milliseconds it is sent again.
    pub(crate) resend: i64,
}

/// Claims of tracked messages that were delivered.
#[derive(Debug, Clone)]
pub struct TrackedClaim {
    pub(crate) ids: Vec<String>,
    pub(crate) consumer: Arc<str>,
    pub(crate) token: i64,
    /// In milliseconds.
    pub(crate) lease: i64,
}

/// What a claim of a tracked message finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackedState {
    /// It is the caller's to handle.
    Granted,
    /// Another call handles it.
    InProgress,
    /// It was handled.
    Handled,
    /// It is recorded for another consumer, or not at all.
    Unknown,
}

/// What becomes of tracked messages whose calls have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackedEnd {
    Handled,
    /// By its subscription, which keeps it as a dead letter: it is not sent again, and may be handled.
    GivenUp,
    Released,
    /// Not yet: held for so many milliseconds more.
    Renewed(i64),
}

/// A tracked message to be sent again.
#[derive(Debug, Clone)]
pub struct TrackedLeftover {
    pub(crate) id: String,
    pub(crate) attempts: u32,
    pub(crate) destination: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Which tracked messages are to be sent again.
#[derive(Debug, Clone, Copy)]
pub struct TrackedDue {
    pub(crate) limit: i64,
    /// The wait before the first time, in milliseconds; it grows by as much with each.
    pub(crate) resend: i64,
    /// The longest such wait.
    pub(crate) longest: i64,
    /// How often at most; then it is parked.
    pub(crate) attempts: u32,
}

/// Whose rows are old enough to go.
#[derive(Debug, Clone, Copy)]
pub enum Old {
    Published,
    Tracked,
    Receipts,
}
