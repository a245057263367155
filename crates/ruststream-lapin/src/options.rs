//! What RabbitMQ lets one say of a publish, beside what all transports have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use ruststream::message::TransportOptions;
use ruststream::transport::{ErrorKind, TransportError};

/// What RabbitMQ lets one say of a publish: the exchange, the properties of AMQP, headers of its types.
///
/// # Examples
///
/// ```
/// use ruststream_lapin::LapinPublish;
///
/// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
/// // With an exchange, the destination is the routing key.
/// let options = LapinPublish::to_exchange("events").priority(5).header("retries", 3i64);
/// publisher.publish("order.created", &7u64).options(options).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LapinPublish {
    pub(crate) exchange: Option<String>,
    pub(crate) mandatory: Option<bool>,
    pub(crate) transaction: bool,
    transient: bool,
    priority: Option<u8>,
    expiration: Option<Duration>,
    message_type: Option<String>,
    app_id: Option<String>,
    user_id: Option<String>,
    timestamp: Option<SystemTime>,
    headers: FieldTable,
}

/// A header that is no number equals nothing, itself included; no one compares those.
impl Eq for LapinPublish {}

impl TransportOptions for LapinPublish {}

impl LapinPublish {
    /// No options yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// To this exchange; the destination of the message is its routing key, which may be empty.
    pub fn to_exchange(exchange: impl Into<String>) -> Self {
        Self {
            exchange: Some(exchange.into()),
            ..Self::default()
        }
    }

    /// Sets whether it is an error that the message reaches no queue; as the broker has it unless set.
    #[must_use]
    pub fn mandatory(mut self, mandatory: bool) -> Self {
        self.mandatory = Some(mandatory);
        self
    }

    /// Sends it in a transaction of the server, with all others of the same call that say so: all are stored, or none, whatever fails or
    /// crashes in between. One that reaches no queue is an error of its own, and the others are stored then.
    ///
    /// A transaction is slower than a confirm, the more so for single messages: use it where several belong together. RabbitMQ promises it
    /// within one queue; for several queues it holds as long as the server does not end in the middle of the commit.
    #[must_use]
    pub fn transaction(mut self) -> Self {
        self.transaction = true;
        self
    }

    /// Lets the message end with its server: a classic queue need not write it to the disk.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.transient = true;
        self
    }

    /// Sets its priority in a queue with [priorities](crate::Queue::max_priority).
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets how long it may wait in its queue; then the server drops it.
    #[must_use]
    pub fn expiration(mut self, time: Duration) -> Self {
        self.expiration = Some(time);
        self
    }

    /// Sets what kind of message it is, for those who read it; up to 255 bytes.
    #[must_use]
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.message_type = Some(message_type.into());
        self
    }

    /// Sets which application sends it; up to 255 bytes.
    #[must_use]
    pub fn app_id(mut self, app: impl Into<String>) -> Self {
        self.app_id = Some(app.into());
        self
    }

    /// Sets which user sends it: the server takes the user of the connection and no other.
    #[must_use]
    pub fn user_id(mut self, user: impl Into<String>) -> Self {
        self.user_id = Some(user.into());
        self
    }

    /// Sets when it was made, in whole seconds; the moment of the publish unless set.
    #[must_use]
    pub fn timestamp(mut self, time: SystemTime) -> Self {
        self.timestamp = Some(time);
        self
    }

    /// Sets a header of any type that AMQP has: what a [headers exchange](crate::Exchange::headers) or another service asks for.
    /// The name has up to 255 bytes; a header of the message with the same name comes before it.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<AMQPValue>) -> Self {
        if let Ok(name) = ShortString::try_new(name) {
            self.headers.insert(name, value.into());
        }
        self
    }

    /// The exchange, if one is set.
    pub fn exchange(&self) -> Option<&str> {
        self.exchange.as_deref()
    }

    /// The headers with their types.
    pub fn headers(&self) -> &FieldTable {
        &self.headers
    }

    /// The properties that it asks for.
    pub(crate) fn properties(&self, now: u64) -> Result<BasicProperties, TransportError> {
        let mut properties = BasicProperties::default().with_delivery_mode(if self.transient { 1 } else { 2 });
        let made = self.timestamp.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        properties = properties.with_timestamp(made.map_or(now, |since| since.as_secs()));
        if let Some(priority) = self.priority {
            properties = properties.with_priority(priority);
        }
        if let Some(time) = self.expiration {
            properties = properties.with_expiration(short("the expiration", &time.as_millis().to_string())?);
        }
        if let Some(text) = &self.message_type {
            properties = properties.with_type(short("the type of message", text)?);
        }
        if let Some(text) = &self.app_id {
            properties = properties.with_app_id(short("the application", text)?);
        }
        if let Some(text) = &self.user_id {
            properties = properties.with_user_id(short("the user", text)?);
        }
        if !self.headers.inner().is_empty() {
            properties = properties.with_headers(self.headers.clone());
        }
        Ok(properties)
    }
}

fn short(what: &str, text: &str) -> Result<ShortString, TransportError> {
    ShortString::try_new(text).map_err(|_| {
        let bytes = text.len();
        TransportError::new(
            ErrorKind::Invalid,
            format!("{what} of a publish has {bytes} bytes; AMQP takes up to 255"),
        )
    })
}
