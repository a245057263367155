//! A message together with what is not in its payload.

use std::ops::Deref;
use std::time::SystemTime;

use super::Message;
use crate::codec::{Codec, CodecError};
use crate::message::{HeaderMap, Incoming};

/// A message together with what is not in its payload: its headers, key and attempt. In a batch it tells them of each message:
///
/// ```
/// use ruststream::prelude::*;
///
/// #[subscriber("readings")]
/// async fn store(readings: &[Envelope<'_, i64>]) -> Vec<Result<(), String>> {
///     let store = |reading: &Envelope<'_, i64>| {
///         let sensor = reading.headers().get_str("sensor").ok_or("the header `sensor` is missing")?;
///         println!("{sensor}: {}", reading.message);
///         Ok(())
///     };
///     readings.iter().map(store).collect()
/// }
/// ```
///
/// A handler of single messages has them as parameters, too: [`Headers<T>`](super::Headers) and [`Context`](super::Context).
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a, T> {
    /// The message itself.
    pub message: T,
    incoming: Incoming<'a>,
}

impl<'a, T> Envelope<'a, T> {
    /// The headers, as published.
    pub fn headers(&self) -> &'a HeaderMap {
        self.incoming.headers()
    }

    /// The key that the message was published with.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.incoming.key()
    }

    /// How often the message has been handed out, this time included: 1 on the first delivery.
    pub fn attempt(&self) -> u32 {
        self.incoming.attempt()
    }

    /// When the message was published, where the transport knows.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.incoming.published_at()
    }

    /// The message as it came.
    pub fn incoming(&self) -> Incoming<'a> {
        self.incoming
    }
}

impl<T> Deref for Envelope<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.message
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: Message<'a>> Message<'a> for Envelope<'a, T> {
    fn read(incoming: Incoming<'a>, codec: &Codec) -> Result<Self, CodecError> {
        Ok(Self {
            message: T::read(incoming, codec)?,
            incoming,
        })
    }
}
