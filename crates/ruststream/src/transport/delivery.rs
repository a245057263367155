//! One message in hand.

use std::any::Any;
use std::time::SystemTime;

use super::PublishError;
use crate::message::{HeaderMap, Outgoing, header};

/// One message in hand. It lends its bytes; taking the receipt ends it.
pub trait Delivery: Send + 'static {
    /// What [`Settle`](super::Settle) needs to settle it.
    type Receipt: Send + 'static;

    /// The bytes of the message, as published.
    fn payload(&self) -> &[u8];

    /// The headers, as published.
    fn headers(&self) -> &HeaderMap;

    /// How often the message has been handed out, this time included: 1 on the first delivery.
    fn attempt(&self) -> u32;

    /// Whether the delivery before this one was never settled: its process died, or its lease or link was lost. Such a message, once
    /// it has been delivered more often than its policy grants attempts, is not handed to its handler again. A transport that
    /// cannot tell says so of every redelivery.
    fn is_unfinished(&self) -> bool {
        self.attempt() > 1
    }

    /// The key that the message was published with.
    fn key(&self) -> Option<&[u8]> {
        self.headers().get(header::KEY)
    }

    /// When the message was published, where the transport knows.
    fn published_at(&self) -> Option<SystemTime> {
        None
    }

    /// Names the lease of this delivery in the answer of [`Settle::renew`](super::Settle::renew); unique among the deliveries
    /// in hand. Transports without leases need none.
    fn lease_id(&self) -> u64 {
        0
    }

    /// What the transport knows besides and lends to extractors of its own: a row, an offset, a transaction.
    fn fields(&self) -> &(dyn Any + Send + Sync) {
        &()
    }

    /// Takes replies that are to be sent by the ack itself: both come through or neither does. `None` where the transport cannot;
    /// the replies are then published first and the message acked when they are confirmed. An error is that of a reply which can
    /// never be sent.
    fn enclose(&mut self, replies: &[Outgoing<'_>]) -> Option<Result<(), PublishError>> {
        let _ = replies;
        None
    }

    /// An attempt at the message did not succeed, and the delivery does not say so by its verdict: it is kept in hand and handled once
    /// more, or acked once its dead letter is stored elsewhere. What the attempt left with the delivery, to take effect with its ack,
    /// is undone here: a transaction, commands, messages.
    ///
    /// It is called in a task and must not block. What it begins may end later, but nothing of the failed attempt may take effect.
    fn attempt_failed(&mut self) {}

    /// Ends the delivery.
    fn into_receipt(self) -> Self::Receipt;
}
