//! Exchanges, bindings and queues as values, declared in one place.

use lapin::ExchangeKind;
use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, types::ShortString};
use ruststream::transport::{ErrorKind, TransportError};

use crate::link::{Link, Live};
use crate::queue::{Declaration, Queue, check_name, text};

/// An exchange: where messages are published to, and led on to queues by [bindings](Binding).
///
/// Durable, and made when it is missing, unless something else is set.
///
/// # Examples
///
/// ```
/// use ruststream_lapin::{Binding, Exchange, LapinBroker, Queue};
///
/// let broker = LapinBroker::new("amqp://localhost")
///     .declare(Exchange::topic("events").alternate("unrouted"))
///     .declare(Exchange::fanout("unrouted"))
///     .declare(Queue::new("audit"))
///     .declare(Binding::new("events", "audit").routing_key("order.*"));
/// # let _ = broker;
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    name: String,
    kind: ExchangeKind,
    declaration: Declaration,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: FieldTable,
}

impl Exchange {
    /// Leads a message to the queues that are bound by exactly its routing key.
    pub fn direct(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Direct)
    }

    /// Leads a message to the queues that are bound by a pattern of its routing key: `*` stands for one word, `#` for any number.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Topic)
    }

    /// Leads a message to every queue that is bound.
    pub fn fanout(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Fanout)
    }

    /// Leads a message to the queues that are bound by its headers; see [`Binding::header`].
    pub fn headers(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Headers)
    }

    /// Shares messages out among the queues that are bound, always the same for the same routing key. The routing key of a binding is
    /// its weight, such as `1`. The server needs the plug-in `rabbitmq_consistent_hash_exchange`.
    pub fn consistent_hash(name: impl Into<String>) -> Self {
        Self::custom(name, "x-consistent-hash")
    }

    /// An exchange of a type that a plug-in of the server adds.
    pub fn custom(name: impl Into<String>, kind: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Custom(kind.into()))
    }

    fn new(name: impl Into<String>, kind: ExchangeKind) -> Self {
        Self {
            name: name.into(),
            kind,
            declaration: Declaration::Assert,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: FieldTable::default(),
        }
    }

    /// Sets the exchange that gets what this one leads nowhere.
    #[must_use]
    pub fn alternate(self, exchange: &str) -> Self {
        self.argument("alternate-exchange", text(exchange))
    }

    /// Sets what is done about it when the app connects; [`Declaration::Assert`] unless set.
    #[must_use]
    pub fn declaration(mut self, declaration: Declaration) -> Self {
        self.declaration = declaration;
        self
    }

    /// Lets it end with the server, and when nothing is bound to it any more.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.durable = false;
        self.auto_delete = true;
        self
    }

    /// Lets no one publish to it directly: only other exchanges lead to it.
    #[must_use]
    pub fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    /// Sets an argument that has no method of its own.
    #[must_use]
    pub fn argument(mut self, name: &str, value: impl Into<AMQPValue>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the app makes it.
    pub(crate) fn is_ours(&self) -> bool {
        self.declaration == Declaration::Assert
    }

    /// Whether only other exchanges lead to it.
    pub(crate) fn is_internal(&self) -> bool {
        self.internal
    }

    /// The type whose rules it leads messages by: one that delays them has another's.
    pub(crate) fn routes_as(&self) -> &str {
        let delayed = self.arguments.inner().get("x-delayed-type");
        match delayed {
            Some(AMQPValue::LongString(kind)) if self.kind() == "x-delayed-message" => {
                std::str::from_utf8(kind.as_bytes()).unwrap_or_default()
            }
            _ => self.kind(),
        }
    }

    /// Its type, in the server's word: `topic`.
    pub fn kind(&self) -> &str {
        match &self.kind {
            ExchangeKind::Direct => "direct",
            ExchangeKind::Topic => "topic",
            ExchangeKind::Fanout => "fanout",
            ExchangeKind::Headers => "headers",
            ExchangeKind::Custom(kind) => kind,
        }
    }

    /// The exchange that gets what this one leads nowhere, if one is set.
    pub fn alternate_exchange(&self) -> Option<&str> {
        match self.arguments.inner().get("alternate-exchange")? {
            AMQPValue::LongString(name) => std::str::from_utf8(name.as_bytes()).ok(),
            _ => None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), TransportError> {
        check_name("an exchange", &self.name)?;
        if self.name.starts_with("amq.") && self.declaration == Declaration::Assert {
            let text = format!(
                "exchange `{}` cannot be made: names that begin with `amq.` are the server's own; read it as it is with \
                 .declaration(Declaration::Passive), or give it another name",
                self.name
            );
            return Err(TransportError::new(ErrorKind::Invalid, text));
        }
        Ok(())
    }

    async fn declare(&self, link: &Link, live: &Live, channel: &Channel) -> Result<(), TransportError> {
        if self.declaration == Declaration::Never {
            return Ok(());
        }
        let options = ExchangeDeclareOptions {
            passive: self.declaration == Declaration::Passive,
            durable: self.durable,
            auto_delete: self.auto_delete,
            internal: self.internal,
            nowait: false,
        };
        let declaring = channel.exchange_declare(
            self.name.as_str().into(),
            self.kind.clone(),
            options,
            self.arguments.clone(),
        );
        link.call(live, &format!("exchange `{}`", self.name), declaring).await
    }
}

/// What leads messages from an exchange on, to a queue or to another exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    exchange: String,
    to: To,
    routing_key: String,
    arguments: FieldTable,
}

#[derive(Debug, Clone, PartialEq)]
enum To {
    Queue(String),
    Exchange(String),
}

impl Binding {
    /// Leads messages from an exchange to a queue.
    pub fn new(exchange: impl Into<String>, queue: impl Into<String>) -> Self {
        Self::to(exchange.into(), To::Queue(queue.into()))
    }

    /// Leads messages from an exchange to another exchange.
    pub fn between(exchange: impl Into<String>, next: impl Into<String>) -> Self {
        Self::to(exchange.into(), To::Exchange(next.into()))
    }

    fn to(exchange: String, to: To) -> Self {
        Self {
            exchange,
            to,
            routing_key: String::new(),
            arguments: FieldTable::default(),
        }
    }

    /// Sets the routing key or pattern; empty unless set.
    #[must_use]
    pub fn routing_key(mut self, key: impl Into<String>) -> Self {
        self.routing_key = key.into();
        self
    }

    /// Asks for a header of this value, at a [headers exchange](Exchange::headers). All that are asked for have to be there, unless
    /// [any](Self::any_header) is enough.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<AMQPValue>) -> Self {
        self.arguments.insert(name.into(), value.into());
        if !self.arguments.contains_key("x-match") {
            self.arguments.insert("x-match".into(), text("all"));
        }
        self
    }

    /// Lets one of the headers be enough.
    #[must_use]
    pub fn any_header(mut self) -> Self {
        self.arguments.insert("x-match".into(), text("any"));
        self
    }

    /// The exchange that it leads from.
    pub fn exchange(&self) -> &str {
        &self.exchange
    }

    /// The queue that it leads to; `None` where it leads to an exchange.
    pub fn queue(&self) -> Option<&str> {
        match &self.to {
            To::Queue(name) => Some(name),
            To::Exchange(_) => None,
        }
    }

    /// The exchange that it leads to; `None` where it leads to a queue.
    pub fn next_exchange(&self) -> Option<&str> {
        match &self.to {
            To::Exchange(name) => Some(name),
            To::Queue(_) => None,
        }
    }

    /// The routing key or pattern.
    pub fn key(&self) -> &str {
        &self.routing_key
    }

    /// What a headers exchange asks for.
    pub fn arguments(&self) -> &FieldTable {
        &self.arguments
    }

    /// The same binding to another queue: the server has chosen its name.
    pub(crate) fn with_queue(mut self, name: &str) -> Self {
        self.to = To::Queue(name.to_owned());
        self
    }

    pub(crate) async fn declare(&self, link: &Link, live: &Live, channel: &Channel) -> Result<(), TransportError> {
        let (exchange, key) = (self.exchange.as_str(), self.routing_key.as_str());
        let arguments = self.arguments.clone();
        match &self.to {
            To::Queue(queue) => {
                let what = format!("binding queue `{queue}` to exchange `{exchange}`");
                let options = QueueBindOptions::default();
                let binding =
                    channel.queue_bind(queue.as_str().into(), exchange.into(), key.into(), options, arguments);
                link.call(live, &what, binding).await
            }
            To::Exchange(next) => {
                let what = format!("binding exchange `{next}` to `{exchange}`");
                let options = ExchangeBindOptions::default();
                let binding =
                    channel.exchange_bind(next.as_str().into(), exchange.into(), key.into(), options, arguments);
                link.call(live, &what, binding).await
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), TransportError> {
        check_name("the exchange to bind", &self.exchange)?;
        match &self.to {
            To::Queue(name) => check_name("the queue to bind", name)?,
            To::Exchange(name) => check_name("the exchange to bind", name)?,
        }
        check_key(&self.routing_key)
    }
}

/// Says what is wrong with a routing key.
pub(crate) fn check_key(key: &str) -> Result<(), TransportError> {
    ShortString::try_new(key).map(drop).map_err(|_| {
        let start: String = key.chars().take(20).collect();
        let text = format!(
            "the routing key {start:?}... has {} bytes; AMQP takes up to 255",
            key.len()
        );
        TransportError::new(ErrorKind::Invalid, text)
    })
}

/// What a broker declares each time it connects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Topology {
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) bindings: Vec<Binding>,
}

impl Topology {
    pub(crate) fn add(&mut self, declared: Declared) {
        match declared.0 {
            OneOf::Exchange(exchange) => self.exchanges.push(exchange),
            OneOf::Queue(queue) => self.queues.push(queue),
            OneOf::Binding(binding) => self.bindings.push(binding),
        }
    }

    /// Exchanges first, then queues, then what binds them, whatever the order in which they were added.
    pub(crate) async fn declare(&self, link: &Link, live: &Live, channel: &Channel) -> Result<(), TransportError> {
        for exchange in &self.exchanges {
            exchange.declare(link, live, channel).await?;
        }
        for queue in &self.queues {
            queue.spec.declare(link, live, channel).await?;
        }
        for binding in &self.bindings {
            binding.declare(link, live, channel).await?;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exchanges.is_empty() && self.queues.is_empty() && self.bindings.is_empty()
    }
}

/// Something that a broker declares: an [`Exchange`], a [`Queue`] or a [`Binding`].
#[derive(Debug, Clone)]
pub struct Declared(OneOf);

#[derive(Debug, Clone)]
enum OneOf {
    Exchange(Exchange),
    Queue(Queue),
    Binding(Binding),
}

impl From<Exchange> for Declared {
    fn from(exchange: Exchange) -> Self {
        Self(OneOf::Exchange(exchange))
    }
}

impl From<Queue> for Declared {
    fn from(queue: Queue) -> Self {
        Self(OneOf::Queue(queue))
    }
}

impl From<Binding> for Declared {
    fn from(binding: Binding) -> Self {
        Self(OneOf::Binding(binding))
    }
}
