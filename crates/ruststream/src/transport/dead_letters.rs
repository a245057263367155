//! Dead letters that a broker keeps, to be looked at, put back or thrown away.

use std::fmt;
use std::pin::Pin;
use std::time::SystemTime;

use bytes::Bytes;

use super::TransportError;
use crate::message::HeaderMap;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A walk through the dead letters of one source, oldest first, for the command `dead-letters` of a service.
///
/// [`Source::dead_letters`](super::Source::dead_letters) begins it. A letter that the walk has shown can be put back or thrown
/// away until the walk is closed; the others stay where they are. It is for people: no service does it while it handles.
pub trait DeadLetters: Send {
    /// The next letters, at most `most`; none at the end. A letter that is put back and dies again is not met twice.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer within the transport's deadline.
    fn next(&mut self, most: usize) -> BoxFuture<'_, Result<Vec<DeadMessage>, TransportError>>;

    /// Puts letters of the last [`next`](Self::next) back to be delivered, and answers how many there still were. No letter is lost
    /// by it, and none is there twice unless the broker fails in between.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer, or has no room; some may be back by then.
    fn replay<'a>(
        &'a mut self,
        ids: &'a [String],
        attempts: ReplayAttempts,
    ) -> BoxFuture<'a, Result<u64, TransportError>>;

    /// Throws letters of the last [`next`](Self::next) away, and answers how many there still were.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer; some may be gone by then.
    fn purge<'a>(&'a mut self, ids: &'a [String]) -> BoxFuture<'a, Result<u64, TransportError>>;

    /// Ends the walk: what it held goes back to where it was.
    ///
    /// # Errors
    ///
    /// Where the broker does not answer.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        Box::pin(async { Ok(()) })
    }
}

/// From where the attempts of a dead letter count when it is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayAttempts {
    /// From the start, as if it were published now.
    Reset,
    /// From where they were: one that had used them up has one more.
    Kept,
}

/// A dead letter: the message as it was published, and its history.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadMessage {
    /// What tells it from the others of its source, such as the id of its row.
    pub id: String,
    /// Why it was given up: a word of [`DeadReason`](super::DeadReason), or of the broker's own where it did so itself.
    pub reason: String,
    /// The text of the last error.
    pub error: String,
    /// How often it was handed to its handler.
    pub attempts: u32,
    /// The name of the subscription that gave it up.
    pub source: String,
    /// When it was given up.
    pub dead_at: SystemTime,
    /// The key that it was published with.
    pub key: Option<Bytes>,
    /// Its headers, without those that tell its history.
    pub headers: HeaderMap,
    /// Its payload, byte for byte.
    pub payload: Bytes,
}

impl DeadMessage {
    /// A letter of which nothing is known yet but what it says; the rest is filled in by field.
    pub fn new(id: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            id: id.into(),
            reason: String::new(),
            error: String::new(),
            attempts: 0,
            source: String::new(),
            dead_at: SystemTime::UNIX_EPOCH,
            key: None,
            headers: HeaderMap::new(),
            payload: payload.into(),
        }
    }
}

/// Without its payload, headers and key, which may hold what no log may show.
impl fmt::Debug for DeadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadMessage")
            .field("id", &self.id)
            .field("reason", &self.reason)
            .field("error", &self.error)
            .field("attempts", &self.attempts)
            .field("source", &self.source)
            .field("dead_at", &self.dead_at)
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
