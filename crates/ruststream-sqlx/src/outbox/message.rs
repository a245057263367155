//! A message on its way into the outbox.

use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use ruststream::codec::{Codec, Encode};
use ruststream::message::{HeaderMap, header};
use ruststream::publish::InvalidDestination;
use ruststream::transport::{ErrorKind, TransportError};

use super::OutboxDatabase;
use super::error::fault;
use super::records::{LONGEST_KEY, NewRecord};
use crate::clock::millis;

/// A message to be written to the outbox by [`Outbox::publish_all`](super::Outbox::publish_all).
#[derive(Debug, Clone)]
#[must_use = "nothing is written until it is handed to `publish_all`"]
pub struct OutboxMessage {
    content: Result<Content, Invalid>,
}

#[derive(Debug, Clone)]
struct Content {
    destination: Cow<'static, str>,
    payload: Vec<u8>,
    headers: HeaderMap,
    key: Option<Bytes>,
    delay: Duration,
}

/// Why it cannot be written; told when it is.
#[derive(Debug, Clone)]
struct Invalid(String);

impl OutboxMessage {
    pub(super) fn new<T: Encode + ?Sized>(
        destination: Result<Cow<'static, str>, InvalidDestination>,
        message: &T,
        codec: &Codec,
    ) -> Self {
        let content = || {
            let destination = destination.map_err(|error| Invalid(error.to_string()))?;
            let mut headers = HeaderMap::new();
            let mut payload = Vec::new();
            message
                .encode(codec, &mut headers, &mut payload)
                .map_err(|error| Invalid(format!("it could not be encoded: {error}")))?;
            Ok(Content {
                destination,
                payload,
                headers,
                key: None,
                delay: Duration::ZERO,
            })
        };
        Self { content: content() }
    }

    /// Sets a header.
    pub fn header(self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.with(|content| content.headers.insert(name, value))
    }

    /// Adds these headers to those that are set.
    pub fn headers(self, headers: &HeaderMap) -> Self {
        self.with(|content| {
            content.headers.extend(
                headers
                    .iter()
                    .map(|(name, value)| (Cow::Owned(name.to_owned()), Bytes::copy_from_slice(value))),
            );
        })
    }

    /// Sets the key: messages of one key are published in the order in which they were written.
    pub fn key(self, key: impl Into<Bytes>) -> Self {
        self.with(|content| content.key = Some(key.into()))
    }

    /// Sets how long it is kept here before it is published. It holds up none of its key.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|content| content.delay = delay)
    }

    fn with(mut self, change: impl FnOnce(&mut Content)) -> Self {
        if let Ok(content) = &mut self.content {
            change(content);
        }
        self
    }

    pub(super) fn into_row(self) -> Result<NewRecord, TransportError> {
        let invalid = |text: String| TransportError::new(ErrorKind::Invalid, text);
        let Content {
            destination,
            payload,
            mut headers,
            key,
            delay,
        } = self.content.map_err(|Invalid(text)| invalid(text))?;
        if destination.is_empty() || destination.len() > 1000 || destination.contains('\0') {
            return Err(invalid(format!(
                "the destination {destination:?} is empty, has more than 1000 bytes, or contains a NUL"
            )));
        }
        if let Some(key) = &key
            && key.len() > LONGEST_KEY
        {
            return Err(invalid(format!(
                "a key has {} bytes and may have {LONGEST_KEY}: use a shorter one, such as a hash of it",
                key.len()
            )));
        }
        if headers.get(header::MESSAGE_ID).is_none() {
            headers.insert(header::MESSAGE_ID, new_id());
        }
        let mut block = Vec::with_capacity(headers.size() + 8 * headers.len());
        headers.write_block(&mut block);
        Ok(NewRecord {
            destination,
            key,
            headers: block,
            payload,
            delay: millis(delay),
        })
    }
}

/// An id that no other message has: 32 hexadecimal digits, rising with time, so that an index of them grows at its end.
pub(super) fn new_id() -> String {
    let now = crate::clock::to_millis(std::time::SystemTime::now()).unsigned_abs() & 0xffff_ffff_ffff;
    let random = fastrand::u128(..) & ((1 << 80) - 1);
    format!("{:032x}", (u128::from(now) << 80) | random)
}

/// A message about to be written to the outbox: set what it needs, then await it.
#[must_use = "nothing is written until it is awaited"]
pub struct Writing<'c, DB: OutboxDatabase> {
    connection: &'c mut DB::Connection,
    message: OutboxMessage,
    notify: bool,
}

impl<'c, DB: OutboxDatabase> Writing<'c, DB> {
    pub(super) fn new(connection: &'c mut DB::Connection, message: OutboxMessage, notify: bool) -> Self {
        Self {
            connection,
            message,
            notify,
        }
    }

    /// Sets a header.
    pub fn header(self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.with(|message| message.header(name, value))
    }

    /// Adds these headers to those that are set.
    pub fn headers(self, headers: &HeaderMap) -> Self {
        self.with(|message| message.headers(headers))
    }

    /// Sets the key: messages of one key are published in the order in which they were written.
    pub fn key(self, key: impl Into<Bytes>) -> Self {
        self.with(|message| message.key(key))
    }

    /// Sets how long it is kept here before it is published. It holds up none of its key.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|message| message.delay(delay))
    }

    fn with(self, change: impl FnOnce(OutboxMessage) -> OutboxMessage) -> Self {
        Self {
            message: change(self.message),
            ..self
        }
    }
}

impl<'c, DB: OutboxDatabase> IntoFuture for Writing<'c, DB> {
    type Output = Result<(), TransportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let row = self.message.into_row()?;
            DB::insert(self.connection, &[row], self.notify).await.map_err(fault)
        })
    }
}

impl<DB: OutboxDatabase> fmt::Debug for Writing<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing")
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}
