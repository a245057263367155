//! A publisher on one broker of the app.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Addressed, Destination, InvalidDestination, Pool, Prepared, PublishLayers, nowhere};
use crate::codec::{Codec, CodecError, Encode};
use crate::message::{HeaderMap, Outgoing, TransportOptions};
use crate::transport::{ErrorKind, Publish, PublishError, TransportError};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A publisher on one broker of the app. Cheap to clone.
///
/// A running app hands it out ([`AppHandle::publisher`](crate::app::AppHandle::publisher)); inside a handler, ask for
/// [`Out<T>`](crate::publish::Out) instead.
///
/// # Examples
///
/// ```
/// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
/// publisher.publish("orders", &7u64).header("region", "eu").key("customer-7").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Publisher {
    transport: Arc<dyn ErasedPublish>,
    codec: Codec,
    pool: Arc<Pool>,
}

impl Publisher {
    pub(crate) fn new(transport: impl Publish, codec: Codec, layers: PublishLayers) -> Self {
        Self {
            transport: Arc::new(transport),
            codec,
            pool: Arc::new(Pool::new(layers)),
        }
    }

    /// A publisher that writes by another codec.
    pub fn with_codec(&self, codec: Codec) -> Self {
        Self {
            transport: self.transport.clone(),
            codec,
            pool: self.pool.clone(),
        }
    }

    /// A publisher that sends past the layers around publishing: for what has passed them before, as what an outbox sends again.
    pub fn without_layers(&self) -> Self {
        Self {
            transport: self.transport.clone(),
            codec: self.codec.clone(),
            pool: Arc::new(Pool::new(PublishLayers::default())),
        }
    }

    /// The codec that it writes by.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Publishes `message` to `destination` once awaited; headers, key, delay and options are set in between.
    ///
    /// # Errors
    ///
    /// Where the message has no form in the codec or the broker did not confirm it. A message that was not confirmed may have
    /// been stored all the same, where the link broke before the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, the message may have been sent or not.
    pub fn publish<T: Encode + ?Sized>(&self, destination: impl Destination, message: &T) -> Publishing {
        Publishing {
            transport: self.transport.clone(),
            pool: self.pool.clone(),
            prepared: self.encode(destination.into_name(), message),
        }
    }

    /// Publishes `message` to where its type says, as [`publish`](Self::publish) does to a name.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), and where the destination cannot be filled from the message.
    ///
    /// # Cancel safety
    ///
    /// As [`publish`](Self::publish).
    pub fn send<T: Encode + Addressed + ?Sized>(&self, message: &T) -> Publishing {
        self.publish(message.destination(), message)
    }

    /// Publishes bytes as they are, without a content type.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    pub fn publish_bytes(&self, destination: impl Destination, payload: impl Into<Vec<u8>>) -> Publishing {
        let prepared = |destination| {
            Box::new(Prepared {
                destination,
                payload: payload.into(),
                ..Prepared::default()
            })
        };
        Publishing {
            transport: self.transport.clone(),
            pool: self.pool.clone(),
            prepared: destination.into_name().map(prepared).map_err(nowhere),
        }
    }

    /// Publishes many messages to `destination`, in order, in as few round trips as the transport allows. Where they differ in more
    /// than their content, [`publish_all`](Self::publish_all) does.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish); the error tells for each message whether it was confirmed. Where one has no form in the
    /// codec or a layer refuses one, none is sent.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, all, some or none of the messages may have been sent.
    pub async fn publish_many<T: Encode>(&self, destination: &str, messages: &[T]) -> Result<(), PublishError> {
        let prepared = messages
            .iter()
            .map(|message| self.encode(Ok(destination.to_owned().into()), message))
            .collect::<Result<_, _>>()?;
        send(&*self.transport, &self.pool, prepared).await
    }

    /// Publishes many messages, each with its own destination, headers, key, delay and options, in order, in as few round trips as
    /// the transport allows.
    ///
    /// # Errors
    ///
    /// As [`publish_many`](Self::publish_many), and where one of them is of a publisher on another broker.
    ///
    /// # Cancel safety
    ///
    /// As [`publish_many`](Self::publish_many).
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
    /// let orders = [(7, "customer-1"), (8, "customer-2")];
    /// let keyed = orders.iter().map(|(id, customer)| publisher.publish("orders", id).key(*customer));
    /// publisher.publish_all(keyed).await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish_all(&self, messages: impl IntoIterator<Item = Publishing>) -> Result<(), PublishError> {
        let here = |message: Publishing| {
            if Arc::ptr_eq(&message.pool, &self.pool) {
                return message.prepared;
            }
            let elsewhere =
                "a message for another broker is among them; publish those of each broker by a publisher on it";
            Err(TransportError::new(ErrorKind::Invalid, elsewhere))
        };
        let prepared = messages.into_iter().map(here).collect::<Result<_, _>>()?;
        send(&*self.transport, &self.pool, prepared).await
    }

    /// Where messages go once they are sent.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.pool.clone()
    }

    /// The layers around the publishing.
    pub(crate) fn layers(&self) -> &PublishLayers {
        self.pool.layers()
    }

    /// Encodes a message to be sent later, in a group.
    pub(crate) fn prepare<T: Encode + ?Sized>(
        &self,
        destination: Result<Cow<'static, str>, InvalidDestination>,
        message: &T,
    ) -> Result<Box<Prepared>, TransportError> {
        self.encode(destination, message)
    }

    fn encode<T: Encode + ?Sized>(
        &self,
        destination: Result<Cow<'static, str>, InvalidDestination>,
        message: &T,
    ) -> Result<Box<Prepared>, TransportError> {
        let destination = destination.map_err(nowhere)?;
        let mut prepared = self.pool.take();
        prepared.destination = destination;
        let Prepared { payload, headers, .. } = &mut *prepared;
        message.encode(&self.codec, headers, payload).map_err(unwritable)?;
        Ok(prepared)
    }
}

/// The error of a message that has no form in its codec.
#[cold]
pub(crate) fn unwritable(error: CodecError) -> TransportError {
    TransportError::new(ErrorKind::Invalid, format!("it could not be encoded: {error}")).with_cause(error)
}

/// Takes messages through the layers, sends them in one call, and tells the layers what became of them.
#[expect(clippy::vec_box, reason = "they go back into the pool in their boxes")]
async fn send(
    transport: &dyn ErasedPublish,
    pool: &Pool,
    mut prepared: Vec<Box<Prepared>>,
) -> Result<(), PublishError> {
    let layers = pool.layers();
    if !layers.is_empty() {
        for one in &mut prepared {
            layers.before(one).await?;
        }
    }
    let outgoing: Vec<_> = prepared.iter().map(|one| one.outgoing()).collect();
    let result = transport.publish(&outgoing).await;
    drop(outgoing);
    if !layers.is_empty() {
        for (position, one) in prepared.iter().enumerate() {
            let failure = result.as_ref().err().and_then(|error| error.for_message(position));
            layers.after(one, failure);
        }
    }
    pool.put(prepared.into_iter());
    result
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("codec", &self.codec)
            .finish_non_exhaustive()
    }
}

/// A message about to be published: set what it needs, then await it.
#[must_use = "nothing is published until it is awaited"]
pub struct Publishing {
    transport: Arc<dyn ErasedPublish>,
    pool: Arc<Pool>,
    prepared: Result<Box<Prepared>, TransportError>,
}

impl Publishing {
    /// Sets a header.
    pub fn header(self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.with(|prepared| prepared.headers.insert(name, value))
    }

    /// Adds these headers to those that are set.
    pub fn headers(self, headers: &HeaderMap) -> Self {
        self.with(|prepared| {
            prepared.headers.extend(
                headers
                    .iter()
                    .map(|(name, value)| (Cow::Owned(name.to_owned()), Bytes::copy_from_slice(value))),
            );
        })
    }

    /// Sets the key: messages of one key keep their order where the subscription is ordered by it.
    pub fn key(self, key: impl Into<Bytes>) -> Self {
        self.with(|prepared| prepared.key = Some(key.into()))
    }

    /// Sets how long the broker keeps the message back.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|prepared| prepared.delay = delay)
    }

    /// Sets what one transport lets its users say beside that, in the place of what was set by the same type. Other transports
    /// leave it alone; see [`TransportOptions`].
    pub fn options(self, options: impl TransportOptions) -> Self {
        self.with(|prepared| prepared.options.insert(options))
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Prepared)) -> Self {
        if let Ok(prepared) = &mut self.prepared {
            change(prepared);
        }
        self
    }
}

impl IntoFuture for Publishing {
    type Output = Result<(), PublishError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        match self.prepared {
            Ok(prepared) => self.transport.send(prepared, self.pool),
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }
}

impl fmt::Debug for Publishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publishing")
            .field("prepared", &self.prepared)
            .finish_non_exhaustive()
    }
}

/// [`Publish`] behind `dyn`: the app hands out one publisher type for all brokers.
trait ErasedPublish: Send + Sync {
    fn publish<'a>(&'a self, messages: &'a [Outgoing<'a>]) -> BoxFuture<'a, Result<(), PublishError>>;

    /// Takes one message through the layers, publishes it, and gives its buffers back to the pool: all in one box.
    fn send(self: Arc<Self>, prepared: Box<Prepared>, pool: Arc<Pool>) -> BoxFuture<'static, Result<(), PublishError>>;
}

impl<P: Publish> ErasedPublish for P {
    fn publish<'a>(&'a self, messages: &'a [Outgoing<'a>]) -> BoxFuture<'a, Result<(), PublishError>> {
        Box::pin(Publish::publish(self, messages))
    }

    fn send(
        self: Arc<Self>,
        mut prepared: Box<Prepared>,
        pool: Arc<Pool>,
    ) -> BoxFuture<'static, Result<(), PublishError>> {
        Box::pin(async move {
            let layers = pool.layers();
            if !layers.is_empty() {
                layers.before(&mut prepared).await?;
            }
            let result = Publish::publish(&*self, &[prepared.outgoing()]).await;
            if !layers.is_empty() {
                layers.after(&prepared, result.as_ref().err().and_then(|error| error.for_message(0)));
            }
            pool.put(std::iter::once(prepared));
            result
        })
    }
}
