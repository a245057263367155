//! One message on its way to a broker.

use std::time::Duration;

use super::{HeaderMap, OptionSet, TransportOptions};

static NO_HEADERS: HeaderMap = HeaderMap::new();
static NO_OPTIONS: OptionSet = OptionSet::new();

/// One message on its way to a broker, borrowed from its author: the transport copies what it must keep.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::message::Outgoing;
///
/// let message = Outgoing::new("orders", b"{}").with_key(b"customer-7").with_delay(Duration::from_secs(60));
/// assert_eq!(message.destination(), "orders");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    destination: &'a str,
    payload: &'a [u8],
    headers: &'a HeaderMap,
    key: Option<&'a [u8]>,
    delay: Duration,
    options: &'a OptionSet,
}

impl<'a> Outgoing<'a> {
    /// A message to `destination` without headers, key, delay or options.
    pub fn new(destination: &'a str, payload: &'a [u8]) -> Self {
        Self {
            destination,
            payload,
            headers: &NO_HEADERS,
            key: None,
            delay: Duration::ZERO,
            options: &NO_OPTIONS,
        }
    }

    /// Sets the headers.
    #[must_use]
    pub fn with_headers(mut self, headers: &'a HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the key: messages of one key keep their order where the subscription is ordered by it.
    #[must_use]
    pub fn with_key(mut self, key: &'a [u8]) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets how long the broker keeps the message back.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets what transports let their users say beside that.
    #[must_use]
    pub fn with_options(mut self, options: &'a OptionSet) -> Self {
        self.options = options;
        self
    }

    /// The name that the message goes to: a queue, a stream, a topic.
    pub fn destination(&self) -> &'a str {
        self.destination
    }

    /// The bytes of the message.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The key, if one was set.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.key
    }

    /// How long the broker is to keep the message back; zero for at once.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// What the author said that only a transport with options of this type knows; see [`TransportOptions`].
    pub fn options<O: TransportOptions>(&self) -> Option<&'a O> {
        self.options.get()
    }

    /// All of that, whatever the transport: for one that hands messages on to another.
    pub fn option_set(&self) -> &'a OptionSet {
        self.options
    }
}
