//! The circumstances of a message, as an extractor.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::time::SystemTime;

use super::{Call, Extract, InHand};
use crate::message::HeaderMap;

/// The circumstances of the message in hand. Ask for it as a parameter: `context: Context<'_>`.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    in_hand: &'a InHand<'a>,
}

impl<'a> Context<'a> {
    /// The name of the subscription.
    pub fn source(&self) -> &'a str {
        &self.in_hand.worker.source
    }

    /// How often the message has been handed out, this time included.
    pub fn attempt(&self) -> u32 {
        self.in_hand.incoming.attempt()
    }

    /// The headers, as published.
    pub fn headers(&self) -> &'a HeaderMap {
        self.in_hand.incoming.headers()
    }

    /// The key that the message was published with.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.in_hand.incoming.key()
    }

    /// The bytes of the message, as published.
    pub fn payload(&self) -> &'a [u8] {
        self.in_hand.incoming.payload()
    }

    /// What the transport knows of the message besides, by a type of its crate: a row, an exchange and its routing key, a topic. `None`
    /// where it has no such `T`, as on the stand-in of a test.
    pub fn fields<T: Any>(&self) -> Option<&'a T> {
        self.in_hand.incoming.fields()
    }

    /// When the message was published, where the transport knows.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.in_hand.incoming.published_at()
    }
}

impl<'a, S: Send + Sync> Extract<'a, S> for Context<'a> {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        Ok(Self { in_hand: call.in_hand })
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("source", &self.source())
            .field("incoming", &self.in_hand.incoming)
            .finish()
    }
}
