//! Messages as they travel: headers, what comes in, what goes out.

mod headers;
mod incoming;
mod options;
mod outgoing;

pub use headers::{HeaderMap, InvalidHeader};
pub use incoming::Incoming;
pub use options::{OptionSet, TransportOptions};
pub use outgoing::Outgoing;

/// The header names that the framework itself reads and writes.
pub mod header {
    /// How the payload is compressed: `gzip`, `zstd`. See [`Compressed`](crate::layer::Compressed).
    pub const CONTENT_ENCODING: &str = "content-encoding";
    /// How the payload is encoded, as a media type: `application/json`.
    pub const CONTENT_TYPE: &str = "content-type";
    /// Which message a message belongs to, carried from a request to all that it causes.
    pub const CORRELATION_ID: &str = "correlation-id";
    /// The key of a message, on transports that have no place of their own for it.
    pub const KEY: &str = "message-key";
    /// The identity of a message, the same on each of its deliveries.
    pub const MESSAGE_ID: &str = "message-id";
    /// The place of a message in a distributed trace.
    pub const TRACE_PARENT: &str = "traceparent";
    /// What the vendors of a trace add to it.
    pub const TRACE_STATE: &str = "tracestate";
    /// The name of a payload that is kept in a store; see [`ClaimCheck`](crate::layer::ClaimCheck).
    pub const CLAIM_CHECK: &str = "claim-check";
    /// Where the answer to a request is to go.
    pub const REPLY_TO: &str = "reply-to";

    /// Why a message is a dead letter: one of the words of [`DeadReason`](crate::transport::DeadReason).
    pub const DEAD_REASON: &str = "dead-letter-reason";
    /// The text of the error that made a message a dead letter.
    pub const DEAD_ERROR: &str = "dead-letter-error";
    /// How often a dead letter was handed to its handler.
    pub const DEAD_ATTEMPTS: &str = "dead-letter-attempts";
    /// The name of the subscription that gave a dead letter up.
    pub const DEAD_SOURCE: &str = "dead-letter-source";
    /// When a dead letter was published, in milliseconds since 1970, where its transport knows.
    pub const DEAD_PUBLISHED_AT: &str = "dead-letter-published-at";
    /// When a message became a dead letter, in milliseconds since 1970.
    pub const DEAD_AT: &str = "dead-letter-at";
}
