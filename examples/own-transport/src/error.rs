//! What each failure means for the caller: the thing, the fix, and whether trying again can help.
//!
//! The kind decides what the runtime does. A transient one is met with backoff; any other ends the subscription, or the start of
//! the app. So a kind is never guessed: what is not known to be permanent is transient.

use std::io;

use ruststream::transport::{ErrorKind, TransportError};

use crate::transport::QueueBroker;

/// A link failed.
pub(crate) fn broken(broker: &QueueBroker, error: io::Error) -> TransportError {
    let address = &broker.address;
    let (kind, message) = match error.kind() {
        io::ErrorKind::InvalidInput => (
            ErrorKind::Invalid,
            format!("`{address}` is no address; write it as `host:port`"),
        ),
        io::ErrorKind::InvalidData => (
            ErrorKind::Incompatible,
            format!("what listens at {address} does not speak as a queue server does; correct the address"),
        ),
        _ => (
            ErrorKind::Unavailable,
            format!("the queue server at {address} cannot be reached: {error}"),
        ),
    };
    TransportError::new(kind, message).with_cause(error)
}

/// A deadline passed.
pub(crate) fn late(broker: &QueueBroker) -> TransportError {
    let QueueBroker { address, deadline } = broker;
    let message = format!("the queue server at {address} did not answer within {deadline:?}");
    TransportError::new(ErrorKind::Timeout, message)
}

/// Refuses what can be no name of a queue.
pub(crate) fn check_name(name: &str) -> Result<(), TransportError> {
    if (1..=255).contains(&name.len()) {
        return Ok(());
    }
    let message = format!("a queue has a name of 1 to 255 bytes; {name:?} has {}", name.len());
    Err(TransportError::new(ErrorKind::Invalid, message))
}
