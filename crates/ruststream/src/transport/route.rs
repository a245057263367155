//! Where messages go on a server that leads them by rules, for those who do without the server.

use std::any::Any;
use std::sync::Arc;

use super::TransportError;
use crate::message::{HeaderMap, Outgoing};

/// The rules by which a broker's server leads messages to queues, for an app that is tested without it.
///
/// A broker whose messages all go to the queue of their destination needs none. Who shares the messages of one queue, its
/// [source](super::Source::audience) says.
pub trait Routes: Send + Sync {
    /// Where a message goes.
    ///
    /// # Errors
    ///
    /// What its publisher is told where the server would refuse it, or could lead it nowhere.
    fn route(&self, message: &Outgoing<'_>) -> Result<Routed, TransportError>;

    /// What [`Delivery::fields`](super::Delivery::fields) is to answer for the message, where handlers ask for the transport's own.
    fn fields(&self, message: &Outgoing<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
        let _ = message;
        None
    }
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// The queues that get a copy of it.
    pub queues: Vec<String>,
    /// The headers that its readers see, where they are others than those it was published with.
    pub headers: Option<HeaderMap>,
}
