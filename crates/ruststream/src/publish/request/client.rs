//! The client and its requests.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::RequestError;
use super::pending::{Expected, Pending};
use crate::codec::{Codec, Encode};
use crate::handler::Message;
use crate::message::{HeaderMap, TransportOptions, header};
use crate::publish::{Destination, Publisher, Publishing};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Sends requests and awaits their answers, as many at a time as one likes. Cheap to clone.
///
/// A running app makes it ([`AppHandle::client`](crate::app::AppHandle::client)). It has a place for replies of its own, which it reads as
/// long as one of its clones or a request of theirs lives: so make one and keep it. Whoever answers is a handler with a
/// reply, `#[subscriber("quotes", reply)]`.
///
/// While an app shuts down, requests are still answered until its handlers have finished, since one of them may wait for an
/// answer; then those that are left end with an error that [says so](RequestError::is_closed).
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Serialize, Deserialize)]
/// struct Quote {
///     pieces: u64,
/// }
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Answer {
///     cents: u64,
/// }
///
/// #[subscriber("quotes", reply)]
/// async fn quote(asked: Quote) -> Answer {
///     Answer { cents: asked.pieces * 250 }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let running = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.include(quote);
///     })
///     .start()
///     .await?;
/// let client = running.client().await?;
/// let answer = client
///     .request::<Quote, Answer>("quotes", &Quote { pieces: 2 })
///     .timeout(Duration::from_secs(1))
///     .await?;
/// assert_eq!(answer, Answer { cents: 500 });
/// running.shutdown().await?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    publisher: Publisher,
    place: Arc<Place>,
}

/// Where the replies to a client come.
struct Place {
    name: Bytes,
    pending: Arc<Pending>,
    /// Ends the reading of replies with the last clone.
    _reading: DropGuard,
}

impl Client {
    /// How long a request waits for its answer where nothing else is set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// `name` is where replies are to go; cancelling `reading` ends the subscription there.
    pub(crate) fn new(publisher: Publisher, name: &str, pending: Arc<Pending>, reading: CancellationToken) -> Self {
        Self {
            publisher,
            place: Arc::new(Place {
                name: Bytes::copy_from_slice(name.as_bytes()),
                pending,
                _reading: reading.drop_guard(),
            }),
        }
    }

    /// A client that writes by another codec, and reads by it the answers that do not say what they are. It shares the place for
    /// replies.
    pub fn with_codec(&self, codec: Codec) -> Self {
        Self {
            publisher: self.publisher.with_codec(codec),
            place: self.place.clone(),
        }
    }

    /// Sends `message` to `destination` once awaited, and answers with the reply; headers, key, options and time-out are set in between.
    ///
    /// # Errors
    ///
    /// Where the request was not sent, no answer came in time or can come any more, or what came is no `A`. Where the handler
    /// fails, it is tried again by its policy; a failure is no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, the answer is awaited no more; the request may have been sent or not.
    pub fn request<T, A>(&self, destination: impl Destination, message: &T) -> Request<A>
    where
        T: Encode + ?Sized,
        A: for<'a> Message<'a> + Send + 'static,
    {
        let destination = destination.into_name();
        Request {
            place: self.place.clone(),
            codec: self.publisher.codec().clone(),
            destination: destination.clone().unwrap_or_default(),
            publishing: self.publisher.publish(destination, message),
            timeout: Self::DEFAULT_TIMEOUT,
            expect: Pending::expect::<A>,
        }
    }

    /// How many replies came that no request was waiting for: too late, twice, or from someone astray. They are acked.
    pub fn strays(&self) -> u64 {
        self.place.pending.strays()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("replies", &self.place.name)
            .finish_non_exhaustive()
    }
}

/// A request about to be sent: set what it needs, then await its answer.
#[must_use = "nothing is sent until it is awaited"]
pub struct Request<A> {
    place: Arc<Place>,
    codec: Codec,
    publishing: Publishing,
    destination: Cow<'static, str>,
    timeout: Duration,
    expect: fn(&Arc<Pending>, &Codec) -> Option<Expected<A>>,
}

impl<A> Request<A> {
    /// Sets how long to wait for the answer, the sending included. 5 s where nothing is set.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets a header. `reply-to` and `correlation-id` are the client's own: what is set there is overwritten.
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.publishing = self.publishing.header(name, value);
        self
    }

    /// Adds these headers to those that are set.
    pub fn headers(mut self, headers: &HeaderMap) -> Self {
        self.publishing = self.publishing.headers(headers);
        self
    }

    /// Sets the key: messages of one key keep their order where the subscription is ordered by it.
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.publishing = self.publishing.key(key);
        self
    }

    /// Sets what one transport lets its users say beside that; see [`TransportOptions`].
    pub fn options(mut self, options: impl TransportOptions) -> Self {
        self.publishing = self.publishing.options(options);
        self
    }
}

impl<A: Send + 'static> IntoFuture for Request<A> {
    type Output = Result<A, RequestError>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            place,
            codec,
            publishing,
            destination,
            timeout: limit,
            expect,
        } = self;
        Box::pin(async move {
            let Some(mut expected) = expect(&place.pending, &codec) else {
                return Err(RequestError::closed(destination.into_owned()));
            };
            let publishing = publishing
                .header(header::REPLY_TO, place.name.clone())
                .header(header::CORRELATION_ID, expected.correlation_id());
            let answered = timeout(limit, answer(publishing, &mut expected)).await;
            match answered {
                Err(_) => Err(RequestError::timed_out(destination.into_owned(), limit)),
                Ok(Err(error)) => Err(RequestError::unpublished(error)),
                Ok(Ok(Some(Ok(answer)))) => Ok(answer),
                Ok(Ok(Some(Err(error)))) => Err(RequestError::undecodable(destination.into_owned(), error)),
                Ok(Ok(None)) if place.pending.is_closed() => Err(RequestError::closed(destination.into_owned())),
                Ok(Ok(None)) => Err(RequestError::unread(destination.into_owned())),
            }
        })
    }
}

type Answered<A> = Result<A, crate::codec::CodecError>;

/// Sends a request and waits for its answer; `None` where that will never come.
async fn answer<A>(
    publishing: Publishing,
    expected: &mut Expected<A>,
) -> Result<Option<Answered<A>>, crate::transport::PublishError> {
    publishing.await?;
    Ok(expected.answer().await)
}

impl<A> fmt::Debug for Request<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("publishing", &self.publishing)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
