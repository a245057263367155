//! Where messages go on a server that leads them by rules, for those who do without the server.

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
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// The queues that get a copy of it.
    pub queues: Vec<String>,
    /// The headers that its readers see, where they are others than those it was published with.
    pub headers: Option<HeaderMap>,
}
