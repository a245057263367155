//! The circumstances of a message, as an extractor.

use std::any::Any;
use std::convert::Infallible;
use std::time::SystemTime;

use super::{Call, Extract};
use crate::message::{HeaderMap, Incoming};

/// The circumstances of the message in hand. Ask for it as a parameter: `context: Context<'_>`.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    source: &'a str,
    incoming: Incoming<'a>,
}

impl<'a> Context<'a> {
    /// The name of the subscription.
    pub fn source(&self) -> &'a str {
        self.source
    }

    /// How often the message has been handed out, this time included.
    pub fn attempt(&self) -> u32 {
        self.incoming.attempt()
    }

    /// The headers, as published.
    pub fn headers(&self) -> &'a HeaderMap {
        self.incoming.headers()
    }

    /// The key that the message was published with.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.incoming.key()
    }

    /// The bytes of the message, as published.
    pub fn payload(&self) -> &'a [u8] {
        self.incoming.payload()
    }

    /// What the transport knows of the message besides, by a type of its crate: a row, an exchange and its routing key, a topic. `None`
    /// where it has no such `T`, as on the stand-in of a test.
    pub fn fields<T: Any>(&self) -> Option<&'a T> {
        self.incoming.fields()
    }

    /// When the message was published, where the transport knows.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.incoming.published_at()
    }
}

impl<'a, S: Send + Sync> Extract<'a, S> for Context<'a> {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        Ok(Self {
            source: call.source(),
            incoming: call.incoming(),
        })
    }
}
