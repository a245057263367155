//! Sending messages.

use super::PublishError;
use crate::message::Outgoing;

/// Sends messages. Cheap to clone; clones share one connection, and calls made at the same time share round trips where the
/// transport can.
pub trait Publish: Clone + Send + Sync + 'static {
    /// Sends one message or many, in order, and returns when the broker has confirmed each.
    ///
    /// # Errors
    ///
    /// [`PublishError`] says for each message whether it was confirmed. One that was not may have been stored all the same,
    /// where the link broke before the answer.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes may have sent all, some or none of the messages.
    fn publish(&self, messages: &[Outgoing<'_>]) -> impl Future<Output = Result<(), PublishError>> + Send;
}
