//! What the runtime decided about a delivery.

use std::fmt;
use std::time::{Duration, SystemTime};

/// What the runtime decided about a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Done: the message is never delivered again.
    Ack,
    /// To be delivered again, not before `after` has passed; the attempt counts.
    Retry {
        /// How long the broker keeps the message back. Zero unless the transport
        /// [keeps delays](super::Capabilities::with_delay).
        after: Duration,
    },
    /// To be put where dead letters are kept. Given only to transports [with such a
    /// place](super::Capabilities::with_dead_letters).
    DeadLetter(Box<DeadLetter>),
    /// Given back as it came: at once, to whoever asks, in its old place, the attempt not counted.
    Release,
    /// Given back at once and in its old place, with so many attempts counted: what was kept in hand for a retry when its app
    /// stopped. A transport that cannot set the count treats it as a retry without a delay.
    Return {
        /// The attempts made so far: the next delivery is this plus one.
        attempts: u32,
    },
}

/// Why and when a message became a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The kind of end.
    pub reason: DeadReason,
    /// The text of the last error.
    pub error: String,
    /// How often the message was handed to its handler.
    pub attempts: u32,
    /// The name of the subscription that gave it up.
    pub source: String,
    /// When it was given up.
    pub at: SystemTime,
}

/// The kind of end that made a message a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// Its handler failed as often as the retry policy allows.
    AttemptsExhausted,
    /// Its payload or headers could not be decoded.
    Undecodable,
    /// Its handler said so.
    Rejected,
}

impl DeadReason {
    /// The word for it in headers, tables and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts-exhausted",
            Self::Undecodable => "undecodable",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
