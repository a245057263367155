//! One message as its handler sees it.

use std::any::Any;
use std::time::SystemTime;

use super::HeaderMap;

/// One message as its handler sees it: borrowed from the delivery, for the time of one call.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    payload: &'a [u8],
    headers: &'a HeaderMap,
    key: Option<&'a [u8]>,
    attempt: u32,
    published_at: Option<SystemTime>,
    fields: &'a (dyn Any + Send + Sync),
}

impl<'a> Incoming<'a> {
    /// A message of these parts, with attempt 1 and no fields of a transport.
    pub fn new(payload: &'a [u8], headers: &'a HeaderMap) -> Self {
        Self {
            payload,
            headers,
            key: None,
            attempt: 1,
            published_at: None,
            fields: &(),
        }
    }

    /// The same message with another payload.
    pub(crate) fn with_payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// The same message with other headers.
    pub(crate) fn with_headers(mut self, headers: &'a HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the key that the message was published with.
    #[must_use]
    pub fn with_key(mut self, key: Option<&'a [u8]>) -> Self {
        self.key = key;
        self
    }

    /// Sets which attempt this is.
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Sets when the message was published.
    #[must_use]
    pub fn with_published_at(mut self, published_at: Option<SystemTime>) -> Self {
        self.published_at = published_at;
        self
    }

    /// Sets what the transport adds of its own.
    #[must_use]
    pub fn with_fields(mut self, fields: &'a (dyn Any + Send + Sync)) -> Self {
        self.fields = fields;
        self
    }

    /// The bytes of the message, as published.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The headers, as published.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The key that the message was published with.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.key
    }

    /// How often the message has been handed out, this time included: 1 on the first delivery.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the message was published, where the transport knows.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.published_at
    }

    /// What the transport knows besides: a row, an offset, a topic. `None` where it has no such `T`.
    pub fn fields<T: Any>(&self) -> Option<&'a T> {
        self.fields.downcast_ref()
    }
}

impl std::fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming")
            .field("payload_bytes", &self.payload.len())
            .field("headers", self.headers)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
