//! A queue to read from, and what is declared of it.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use ruststream::transport::{Audience, Capabilities, DeadLetters, ErrorKind, Source, TransportError};

use crate::check;
use crate::connection::LapinConnection;
use crate::fetch::QueueFetch;
use crate::link::{Link, Live};
use crate::outbox::Outbox;
use crate::replies::DIRECT;
use crate::session::Subscription;
use crate::settle::QueueSettle;
use crate::stream::StreamOffset;
use crate::topology::Binding;
use crate::walk::Walk;

/// The longest name: AMQP takes 255 bytes, of which delays and dead letters need some for names of their own.
const LONGEST_NAME: usize = 200;

/// The name of those who read a stream where none is set.
const DEFAULT_READER: &str = "ruststream";

const DELIVERY_LIMIT: &str = "x-delivery-limit";
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
const DEAD_LETTER_KEY: &str = "x-dead-letter-routing-key";

/// How a queue keeps its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QueueType {
    /// On one node. Fast; the node's loss is the queue's.
    #[default]
    Classic,
    /// On a majority of nodes, written to disk before it is confirmed. Counts its deliveries itself.
    Quorum,
    /// A log that keeps what was read: each [reader](Queue::reader) gets all of it.
    Stream,
}

impl QueueType {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
            Self::Stream => "stream",
        }
    }
}

/// What a subscription does about its queue when it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Declaration {
    /// Makes the queue where it is missing, and fails where it is there with other arguments; the error names the argument.
    #[default]
    Assert,
    /// Takes the queue as it is, and fails where it is missing.
    Passive,
    /// Asks nothing: for users without the right to configure. Consuming fails where the queue is missing.
    Never,
}

/// A queue of RabbitMQ.
///
/// Durable, and made when it is missing, unless something else is set. What is published to its name comes here through the
/// default exchange.
///
/// # Examples
///
/// ```
/// use ruststream::transport::Source;
/// use ruststream_lapin::{Declaration, Queue};
///
/// let orders = Queue::new("orders").quorum().delivery_limit(20);
/// assert_eq!(orders.name(), "orders");
/// let theirs = Queue::new("invoices").declaration(Declaration::Passive);
/// # let _ = theirs;
/// ```
#[derive(Debug, Clone)]
pub struct Queue {
    pub(crate) spec: Arc<Spec>,
}

/// Whose the name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Named,
    /// The server chooses one, and the name is for people.
    ServerNamed,
    /// It is no queue but where direct replies come.
    DirectReply,
}

/// All that is known of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) queue_type: QueueType,
    pub(crate) declaration: Declaration,
    /// Ends with its connection and is no one else's.
    pub(crate) exclusive: bool,
    pub(crate) auto_delete: bool,
    pub(crate) place: Place,
    pub(crate) transactional: bool,
    pub(crate) arguments: FieldTable,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) consumer_priority: Option<i32>,
    pub(crate) prefetch: Option<u16>,
    pub(crate) dead_letters: String,
    /// Where a stream is read from, while no position is kept.
    pub(crate) offset: StreamOffset,
    /// The name under which the position in a stream is kept; `None` where none is.
    pub(crate) reader: Option<String>,
    /// The last method that was called of those that only streams have.
    pub(crate) stream_setting: Option<&'static str>,
}

impl Queue {
    /// The classic queue of this name; 1 to 200 bytes.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            spec: Arc::new(Spec {
                dead_letters: format!("{name}.dead"),
                name,
                queue_type: QueueType::Classic,
                declaration: Declaration::Assert,
                exclusive: false,
                auto_delete: false,
                place: Place::Named,
                transactional: false,
                arguments: FieldTable::default(),
                bindings: Vec::new(),
                consumer_priority: None,
                prefetch: None,
                offset: StreamOffset::default(),
                reader: Some(DEFAULT_READER.to_owned()),
                stream_setting: None,
            }),
        }
    }

    /// Makes it a quorum queue.
    #[must_use]
    pub fn quorum(self) -> Self {
        self.queue_type(QueueType::Quorum)
    }

    /// Makes it a stream: a log that keeps what was read, as long as its [age](Self::max_age) and [size](Self::max_length_bytes)
    /// allow. Every [reader](Self::reader) gets all messages, and a reader is one process at a time.
    ///
    /// What fails is tried again in hand, since a stream takes nothing back; attempts are counted while the process lives, and messages
    /// behind one that waits come again if it does not end well.
    #[must_use]
    pub fn stream(self) -> Self {
        self.queue_type(QueueType::Stream)
    }

    /// Sets where a stream is read from while no position is kept: [`StreamOffset::First`] unless set, so that nothing is missed.
    #[must_use]
    pub fn offset(self, offset: StreamOffset) -> Self {
        self.of_stream("offset").with(|spec| spec.offset = offset)
    }

    /// Names the reader of a stream, whose position the server keeps in the queue `<stream>.position.<reader>`; `ruststream` unless
    /// set. A second process of the same name waits until the first has ended. To let a reader begin anew, stop it and delete that queue.
    #[must_use]
    pub fn reader(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.of_stream("reader").with(|spec| spec.reader = Some(name))
    }

    /// Keeps no position in the stream: each process reads for itself, and from the [offset](Self::offset) on each time it starts.
    #[must_use]
    pub fn untracked(self) -> Self {
        self.of_stream("untracked").with(|spec| spec.reader = None)
    }

    /// Sets how long a stream keeps its messages; in whole seconds, and whole parts of the stream at a time.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        self.of_stream("max_age")
            .argument("x-max-age", text(&format!("{}s", age.as_secs().max(1))))
    }

    /// Sets how it keeps its messages.
    #[must_use]
    pub fn queue_type(self, queue_type: QueueType) -> Self {
        self.with(|spec| spec.queue_type = queue_type)
    }

    /// Sets what is done about the queue when the subscription opens; [`Declaration::Assert`] unless set.
    #[must_use]
    pub fn declaration(self, declaration: Declaration) -> Self {
        self.with(|spec| spec.declaration = declaration)
    }

    /// Sets how often a quorum queue hands a message out, beyond the first time, before the server itself makes it a dead letter.
    ///
    /// Only deliveries that end without a verdict count here, as when a process dies: retries are messages of their own. Unless it is
    /// set, the server's own limit holds: none before RabbitMQ 4.0, and 20 since.
    #[must_use]
    pub fn delivery_limit(self, limit: u32) -> Self {
        self.argument(DELIVERY_LIMIT, i64::from(limit))
    }

    /// Sets the name of the queue for its dead letters; `<name>.dead` unless set. It is made when the first dead letter comes.
    #[must_use]
    pub fn dead_letters(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.with(|spec| spec.dead_letters = name)
    }

    /// A queue whose name the server chooses, of this connection alone; `name` is what people know the subscription by. It is
    /// made anew with each link, so it has to be [bound](Self::bound_to) to an exchange, and what comes while there is no link is missed.
    pub fn server_named(name: impl Into<String>) -> Self {
        Self::new(name).exclusive().with(|spec| spec.place = Place::ServerNamed)
    }

    /// A place for the replies to requests, which needs no queue.
    pub(crate) fn direct_reply(name: &str) -> Self {
        Self::new(name)
            .declaration(Declaration::Never)
            .with(|spec| spec.place = Place::DirectReply)
    }

    /// Makes it a queue of this connection alone, which ends with its link and is made anew with the next.
    #[must_use]
    pub fn exclusive(self) -> Self {
        self.with(|spec| spec.exclusive = true)
    }

    /// Lets it end when the last of those who read it has gone.
    #[must_use]
    pub fn auto_delete(self) -> Self {
        self.with(|spec| spec.auto_delete = true)
    }

    /// Binds it to an exchange whenever it is declared; the routing key or pattern is that of the exchange's type.
    #[must_use]
    pub fn bound_to(self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        let name = self.spec.name.clone();
        self.bound_by(Binding::new(exchange, name).routing_key(routing_key))
    }

    /// Binds it by a [`Binding`] whenever it is declared, such as one that asks for headers. Where the binding leads is this queue.
    #[must_use]
    pub fn bound_by(self, binding: Binding) -> Self {
        self.with(|spec| {
            let binding = binding.with_queue(&spec.name);
            spec.bindings.push(binding);
        })
    }

    /// Lets messages with a higher priority pass others, up to this priority; 1 to 255, and 10 is plenty. Only classic queues.
    #[must_use]
    pub fn max_priority(self, highest: u8) -> Self {
        self.argument("x-max-priority", highest)
    }

    /// Sets how long a message stays at most; then it is dropped, or led to the [dead-letter exchange](Self::dead_letter_exchange).
    #[must_use]
    pub fn message_ttl(self, time: Duration) -> Self {
        self.argument("x-message-ttl", millis(time))
    }

    /// Sets how many messages stay at most; beyond that the oldest is dropped, unless [`reject_publish`](Self::reject_publish) is set.
    #[must_use]
    pub fn max_length(self, messages: u32) -> Self {
        self.argument("x-max-length", i64::from(messages))
    }

    /// Sets how many bytes of payload stay at most; as [`max_length`](Self::max_length).
    #[must_use]
    pub fn max_length_bytes(self, bytes: u64) -> Self {
        self.argument("x-max-length-bytes", i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// Refuses what is published beyond the length, with an error to its publisher, in place of dropping the oldest.
    #[must_use]
    pub fn reject_publish(self) -> Self {
        self.argument("x-overflow", text("reject-publish"))
    }

    /// Keeps messages on the disk and not in memory. Since RabbitMQ 3.12, classic queues do so anyway.
    #[must_use]
    pub fn lazy(self) -> Self {
        self.argument("x-queue-mode", text("lazy"))
    }

    /// Lets the queue end when it has been unused for this long.
    #[must_use]
    pub fn expires(self, time: Duration) -> Self {
        self.argument("x-expires", millis(time))
    }

    /// Lets one consumer at a time have the messages, and the next only when it is gone: order, with a spare. Its
    /// [prefetch](Self::prefetch) is 128 then, unless set afterwards.
    #[must_use]
    pub fn single_active_consumer(self) -> Self {
        self.prefetch(128).argument("x-single-active-consumer", true)
    }

    /// Sets which consumers are served first, as long as they take: those of the highest priority; 0 unless set.
    #[must_use]
    pub fn consumer_priority(self, priority: i32) -> Self {
        self.with(|spec| spec.consumer_priority = Some(priority))
    }

    /// Fixes how many messages the server sends ahead of their acks, 1 at least. Unless it is set, that follows what the subscription asks
    /// for, and grows while its handler is quick. One active consumer among many needs it: it takes what it was given at first.
    #[must_use]
    pub fn prefetch(self, messages: u16) -> Self {
        self.with(|spec| spec.prefetch = Some(messages.max(1)))
    }

    /// Sets where the server leads what it drops itself: messages past their [time](Self::message_ttl) or beyond the
    /// [length](Self::max_length). What the app gives up goes to the [queue for dead letters](Self::dead_letters).
    #[must_use]
    pub fn dead_letter_exchange(self, exchange: &str, routing_key: &str) -> Self {
        self.argument(DEAD_LETTER_EXCHANGE, text(exchange))
            .argument(DEAD_LETTER_KEY, text(routing_key))
    }

    /// Acks in transactions of the server, and lets handlers publish in them: either all of it is done or nothing. See
    /// [`LapinTransaction`](crate::LapinTransaction). Each group of acks waits for its commit.
    #[must_use]
    pub fn transactional(self) -> Self {
        self.with(|spec| spec.transactional = true)
    }

    /// Sets an argument that has no method of its own.
    #[must_use]
    pub fn argument(self, name: &str, value: impl Into<AMQPValue>) -> Self {
        self.with(|spec| {
            spec.arguments.insert(name.into(), value.into());
        })
    }

    /// The bindings that are declared with it.
    pub fn bindings(&self) -> &[Binding] {
        &self.spec.bindings
    }

    fn of_stream(self, method: &'static str) -> Self {
        self.with(|spec| spec.stream_setting = Some(method))
    }

    fn with(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        change(Arc::make_mut(&mut self.spec));
        self
    }
}

/// Says what is wrong with the name of a queue.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), TransportError> {
    let text = if name.is_empty() {
        format!("the name of {what} is empty: give it one of 1 to {LONGEST_NAME} bytes")
    } else if name.len() > LONGEST_NAME {
        let start: String = name.chars().take(20).collect();
        format!(
            "the name of {what} {start:?}... has {} bytes: give it one of at most {LONGEST_NAME}",
            name.len()
        )
    } else {
        return Ok(());
    };
    Err(TransportError::new(ErrorKind::Invalid, text))
}

impl Spec {
    pub(crate) fn is_server_named(&self) -> bool {
        self.place == Place::ServerNamed
    }

    /// Whether it is no queue but where direct replies come.
    pub(crate) fn is_direct_reply(&self) -> bool {
        self.place == Place::DirectReply
    }

    /// Whether an argument is set.
    pub(crate) fn has(&self, argument: &str) -> bool {
        self.arguments.contains_key(argument)
    }

    /// The first thing in which the declarations of the same queue differ.
    pub(crate) fn differs_from(&self, other: &Self) -> Option<String> {
        if self.declaration != Declaration::Assert || other.declaration != Declaration::Assert {
            return None;
        }
        if (self.exclusive, self.auto_delete) != (other.exclusive, other.auto_delete) {
            return Some("lifetime".to_owned());
        }
        let (here, there) = (self.arguments(), other.arguments());
        let names = here.inner().keys().chain(there.inner().keys());
        let differs = |name: &&lapin::types::ShortString| here.inner().get(*name) != there.inner().get(*name);
        names.into_iter().find(differs).map(|name| format!("`{name}`"))
    }

    /// Declares the queue as is set, with its bindings; answers its name.
    pub(crate) async fn declare(&self, link: &Link, live: &Live, channel: &Channel) -> Result<String, TransportError> {
        let what = format!("queue `{}`", self.name);
        let passive = self.declaration == Declaration::Passive;
        if self.declaration == Declaration::Never {
            return Ok(self.name.clone());
        }
        let options = QueueDeclareOptions {
            passive,
            durable: !self.exclusive,
            exclusive: self.exclusive,
            auto_delete: self.auto_delete,
            nowait: false,
        };
        let arguments = if passive {
            FieldTable::default()
        } else {
            self.arguments()
        };
        let asked = if self.is_server_named() { "" } else { self.name.as_str() };
        let declaring = channel.queue_declare(asked.into(), options, arguments);
        let name = link.call(live, &what, declaring).await?.name().to_string();
        if !passive {
            for binding in &self.bindings {
                binding.clone().with_queue(&name).declare(link, live, channel).await?;
            }
        }
        Ok(name)
    }

    /// Consumes what is declared already, at most `window` messages ahead; a stream from `offset` on.
    pub(crate) async fn consume(
        &self,
        outbox: &Outbox,
        live: &Live,
        channel: &Channel,
        name: &str,
        window: u16,
        offset: Option<StreamOffset>,
    ) -> Result<Consumer, TransportError> {
        let link = &outbox.consuming;
        let what = format!("consuming queue `{}`", self.name);
        if self.is_direct_reply() {
            let options = BasicConsumeOptions {
                no_ack: true,
                ..BasicConsumeOptions::default()
            };
            let consuming = channel.basic_consume(DIRECT.into(), "".into(), options, FieldTable::default());
            return link.call(live, &what, consuming).await;
        }
        link.call(
            live,
            &what,
            channel.basic_qos(window, BasicQosOptions { global: false }),
        )
        .await?;
        let mut arguments = FieldTable::default();
        if let Some(priority) = self.consumer_priority {
            arguments.insert("x-priority".into(), priority.into());
        }
        if let Some(offset) = offset {
            arguments.insert("x-stream-offset".into(), offset.argument());
        }
        let options = BasicConsumeOptions::default();
        let consuming = channel.basic_consume(name.into(), "".into(), options, arguments);
        link.call(live, &what, consuming).await
    }

    /// The arguments of its declaration; <https://www.rabbitmq.com/docs/queues#optional-arguments>.
    fn arguments(&self) -> FieldTable {
        let mut arguments = self.arguments.clone();
        let mut unless_set = |name: &str, value: AMQPValue| {
            if !arguments.contains_key(name) {
                arguments.insert(name.into(), value);
            }
        };
        if !self.exclusive {
            unless_set("x-queue-type", text(self.queue_type.word()));
        }
        if self.queue_type == QueueType::Quorum {
            // What the server gives up is not thrown away, and leaves the queue only when its copy is confirmed.
            unless_set(DEAD_LETTER_EXCHANGE, text(""));
            unless_set(DEAD_LETTER_KEY, text(&self.dead_letters));
            unless_set("x-dead-letter-strategy", text("at-least-once"));
            unless_set("x-overflow", text("reject-publish"));
        }
        arguments
    }

    /// The queue where its dead letters are kept, for which nothing but its name and kind is set.
    pub(crate) fn dead_letter_arguments(&self) -> FieldTable {
        let mut arguments = FieldTable::default();
        // A stream would keep them for ever.
        let queue_type = match self.queue_type {
            QueueType::Stream => QueueType::Quorum,
            other => other,
        };
        arguments.insert("x-queue-type".into(), text(queue_type.word()));
        arguments
    }
}

/// Whole milliseconds, as arguments have them.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

impl Source for Queue {
    type Connection = LapinConnection;
    type Fetch = QueueFetch;
    type Settle = QueueSettle;

    fn name(&self) -> &str {
        &self.spec.name
    }

    fn capabilities(&self) -> Capabilities {
        let none = Capabilities::none().with_dead_letters();
        match self.spec.queue_type {
            QueueType::Stream => none,
            _ => none.with_delay().with_attempts(),
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        check::queue(&self.spec)
    }

    fn audience(&self) -> Option<Audience> {
        let Spec { queue_type, reader, .. } = &*self.spec;
        let audience = match (queue_type, reader) {
            (QueueType::Stream, Some(reader)) => Audience::group(reader.as_str()),
            (QueueType::Stream, None) => Audience::each(),
            _ if self.spec.is_server_named() => Audience::each(),
            _ => Audience::shared(),
        };
        Some(audience)
    }

    async fn open(&self, connection: &LapinConnection) -> Result<(QueueFetch, QueueSettle), TransportError> {
        self.check()?;
        let subscription = Arc::new(Subscription::new(self.spec.clone(), connection.outbox().clone()));
        let fetch = QueueFetch::open(subscription.clone()).await?;
        Ok((fetch, QueueSettle::new(subscription)))
    }

    async fn dead_letters(&self, connection: &LapinConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        let walk = Walk::open(connection.outbox().clone(), &self.spec.dead_letters, &self.spec.name).await?;
        Ok(Some(Box::new(walk)))
    }
}
