//! What a handler answers beside a plain value.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::{Call, Failure, IntoReply, Outcome};
use crate::codec::{Codec, Encode};
use crate::message::TransportOptions;
use crate::publish::{Addressed, Destination, InvalidDestination, Prepared, inherit, nowhere, unwritable};
use crate::transport::TransportError;

/// One message that a handler answers with, with what can be said of it: where it goes, headers, key, delay, options.
///
/// A handler that just answers returns the value itself. It returns a `Reply` to say more, and [`Replies`] to answer with several
/// messages.
pub struct Reply {
    value: Box<dyn Encode + Send>,
    destination: Option<Result<Cow<'static, str>, InvalidDestination>>,
    /// All but the destination and the payload.
    set: Prepared,
}

impl Reply {
    /// A message to where the request asks, or else to where `#[subscriber(.., reply = "..")]` says.
    pub fn new(value: impl Encode + Send + 'static) -> Self {
        Self {
            value: Box::new(value),
            destination: None,
            set: Prepared::default(),
        }
    }

    /// A message to where its type says.
    pub fn addressed(value: impl Encode + Addressed + Send + 'static) -> Self {
        let destination = value.destination();
        Self::new(value).to(destination)
    }

    /// Sends it to `destination`, wherever the request asks for answers.
    #[must_use]
    pub fn to(mut self, destination: impl Destination) -> Self {
        self.destination = Some(destination.into_name());
        self
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.set.headers.insert(name, value);
        self
    }

    /// Sets the key: messages of one key keep their order where the subscription is ordered by it.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.set.key = Some(key.into());
        self
    }

    /// Sets how long the broker keeps the message back.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.set.delay = delay;
        self
    }

    /// Sets what one transport lets its users say beside that; see [`TransportOptions`].
    #[must_use]
    pub fn options(mut self, options: impl TransportOptions) -> Self {
        self.set.set_options(options);
        self
    }

    /// The message as it would be sent, written by `codec`: what a test of a handler asserts on. Its destination is empty where the
    /// reply names none, and the request or the handler decides; what a message inherits from the one that caused it is not there
    /// yet.
    ///
    /// # Errors
    ///
    /// Where the destination cannot be filled, or the message has no form in the codec.
    pub fn prepared(&self, codec: &Codec) -> Result<Prepared, TransportError> {
        let mut prepared = self.set.clone();
        if let Some(destination) = &self.destination {
            prepared.destination = destination.clone().map_err(nowhere)?;
        }
        let set = std::mem::take(&mut prepared.headers);
        let Prepared { headers, payload, .. } = &mut prepared;
        self.value.encode(codec, headers, payload).map_err(unwritable)?;
        headers.take_over(set);
        Ok(prepared)
    }

    /// The message, encoded; `None` where neither it nor the request nor the handler says where it goes.
    fn prepare<S>(
        self,
        call: &Call<'_, S>,
        fixed: Option<&'static str>,
    ) -> Option<Result<Box<Prepared>, TransportError>> {
        let destination = match self.destination {
            Some(destination) => destination,
            None => Ok(call.answer_to(fixed)?),
        };
        let prepared = call.publisher().prepare(destination, &*self.value);
        Some(prepared.map(|mut prepared| {
            let Prepared {
                headers,
                key,
                delay,
                options,
                ..
            } = self.set;
            prepared.headers.take_over(headers);
            prepared.key = key;
            prepared.delay = delay;
            prepared.options = options;
            inherit(call.incoming().headers(), &mut prepared.headers);
            prepared
        }))
    }
}

#[diagnostic::do_not_recommend]
impl IntoReply for Reply {
    fn into_reply<S>(self, call: Call<'_, S>, destination: Option<&'static str>) -> Outcome {
        Replies::from([self]).into_reply(call, destination)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("destination", &self.destination)
            .field("headers", &self.set.headers)
            .field("key", &self.set.key)
            .field("delay", &self.set.delay)
            .finish_non_exhaustive()
    }
}

/// Several messages that a handler answers with. The message in hand is acked once each of them is confirmed; where one is not, it is
/// handled again, and those that were confirmed are sent again.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Deserialize)]
/// struct Order {
///     id: u64,
///     lines: Vec<u64>,
/// }
///
/// #[derive(Serialize)]
/// struct Receipt {
///     order: u64,
/// }
///
/// #[derive(Serialize, Message)]
/// #[message(destination = "lines.{product}")]
/// struct Line {
///     product: u64,
/// }
///
/// #[subscriber("orders", reply = "receipts")]
/// async fn split(order: Order) -> Replies {
///     let lines = order.lines.iter().map(|&product| Reply::addressed(Line { product }));
///     Replies::from([Reply::new(Receipt { order: order.id }).key(order.id.to_string())]).and(lines)
/// }
/// ```
///
/// A test of the handler alone looks at what [would be sent](Reply::prepared):
///
/// ```
/// # use ruststream::prelude::*;
/// # #[derive(Serialize)]
/// # struct Line { product: u64 }
/// # #[subscriber("orders", reply)]
/// # async fn split(product: u64) -> Replies { Replies::from([Reply::new(Line { product }).to("lines.7")]) }
/// use ruststream::codec::Codec;
///
/// # async fn test() -> Result<(), ruststream::transport::TransportError> {
/// let replies = split::call(7).await;
/// let line = replies.iter().next().expect("a line").prepared(&Codec::Json)?;
/// assert_eq!((line.destination(), line.payload()), ("lines.7", &b"{\"product\":7}"[..]));
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(test()).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Replies(Vec<Reply>);

impl Replies {
    /// The same, and these behind them.
    #[must_use]
    pub fn and(mut self, more: impl IntoIterator<Item = Reply>) -> Self {
        self.0.extend(more);
        self
    }

    /// The messages, in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Reply> {
        self.0.iter()
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is no message.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Replies {
    type Item = &'a Reply;
    type IntoIter = std::slice::Iter<'a, Reply>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<const N: usize> From<[Reply; N]> for Replies {
    fn from(replies: [Reply; N]) -> Self {
        Self(replies.into())
    }
}

impl FromIterator<Reply> for Replies {
    fn from_iter<I: IntoIterator<Item = Reply>>(replies: I) -> Self {
        Self(replies.into_iter().collect())
    }
}

#[diagnostic::do_not_recommend]
impl IntoReply for Replies {
    fn into_reply<S>(self, call: Call<'_, S>, destination: Option<&'static str>) -> Outcome {
        let prepared = self.0.into_iter().filter_map(|reply| reply.prepare(&call, destination));
        match prepared.collect::<Result<Vec<_>, _>>() {
            Ok(replies) if replies.is_empty() => Outcome::ACK,
            Ok(mut replies) if replies.len() == 1 => Outcome::Reply(replies.remove(0)),
            Ok(replies) => Outcome::Replies(replies),
            Err(error) => Outcome::Failed(Box::new(Failure::error(error))),
        }
    }
}
