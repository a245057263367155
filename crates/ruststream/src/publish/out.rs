//! Publishing from a handler.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use super::{Addressed, Destination, Publisher, Publishing, inherit};
use crate::codec::{Codec, Encode};
use crate::handler::{Call, Extract, ExtractBatch};
use crate::message::HeaderMap;
use crate::transport::PublishError;

/// Publishes messages of type `T` from a handler, on the broker of its subscription.
///
/// What is published belongs to the message in hand: its correlation id, or else its message id, travels along as the
/// correlation id, and so does the trace context. In a batch, what all messages have in common of these travels along.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[subscriber("orders")]
/// async fn split(order: Vec<u64>, lines: Out<u64>) -> Result<(), ruststream::transport::PublishError> {
///     for line in &order {
///         lines.publish("lines", line).await?;
///     }
///     Ok(())
/// }
/// ```
pub struct Out<T: ?Sized> {
    publisher: Publisher,
    inherited: HeaderMap,
    messages: PhantomData<fn(&T)>,
}

impl<T: ?Sized> Out<T> {
    /// The same, writing by another codec.
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.publisher = self.publisher.with_codec(codec);
        self
    }

    /// Publishes `message` to `destination` once awaited; headers, key, delay and options are set in between.
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish`].
    ///
    /// # Cancel safety
    ///
    /// As [`Publisher::publish`].
    pub fn publish(&self, destination: impl Destination, message: &T) -> Publishing
    where
        T: Encode,
    {
        self.publisher
            .publish(destination, message)
            .with(|prepared| inherit(&self.inherited, &mut prepared.headers))
    }

    /// Publishes `message` to where its type says.
    ///
    /// # Errors
    ///
    /// As [`Publisher::send`].
    ///
    /// # Cancel safety
    ///
    /// As [`Publisher::publish`].
    pub fn send(&self, message: &T) -> Publishing
    where
        T: Encode + Addressed,
    {
        self.publish(message.destination(), message)
    }

    /// Publishes many messages, made by [`publish`](Self::publish) or [`send`](Self::send) of any `Out` of this handler, in one go.
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish_all`].
    ///
    /// # Cancel safety
    ///
    /// As [`Publisher::publish_all`].
    pub async fn publish_all(&self, messages: impl IntoIterator<Item = Publishing>) -> Result<(), PublishError> {
        self.publisher.publish_all(messages).await
    }
}

impl<'a, S: Send + Sync, T: ?Sized> Extract<'a, S> for Out<T> {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        let mut inherited = HeaderMap::new();
        inherit(call.incoming().headers(), &mut inherited);
        Ok(Self {
            publisher: call.publisher().clone(),
            inherited,
            messages: PhantomData,
        })
    }
}

impl<'a, S: Send + Sync, T: ?Sized> ExtractBatch<'a, S> for Out<T> {
    type Rejection = Infallible;

    async fn extract_batch(calls: &[Call<'a, S>]) -> Result<Self, Infallible> {
        let mut inherited = HeaderMap::new();
        inherit(calls[0].incoming().headers(), &mut inherited);
        for call in &calls[1..] {
            if inherited.is_empty() {
                break;
            }
            let mut own = HeaderMap::new();
            inherit(call.incoming().headers(), &mut own);
            inherited.retain(|name, value| own.get(name) == Some(value));
        }
        Ok(Self {
            publisher: calls[0].publisher().clone(),
            inherited,
            messages: PhantomData,
        })
    }
}

impl<T: ?Sized> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out")
            .field("inherited", &self.inherited)
            .finish_non_exhaustive()
    }
}
