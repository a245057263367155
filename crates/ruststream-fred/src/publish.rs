//! Sending messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::types::Value;
use ruststream::message::{Outgoing, TransportOptions};
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};

use crate::error::{Failure, Sign};
use crate::hub::Hub;
use crate::names::{beside as in_slot, check_name, slot_of};
use crate::script::Script;
use crate::source::Form;
use crate::stream::{EntryId, time};
use crate::wakes::Wakes;
use crate::{beside, envelope, message};

/// How many commands go into one pipeline: bounds what one publish keeps of others waiting.
const PIPELINE: usize = 512;

/// Keeps a packed message until it is due. KEYS: delayed, wake; ARGV: milliseconds, packed message.
static DELAY: Script = Script::new(include_str!("stream/lua/delay.lua"));

/// What Redis lets one say of a publish, beside headers, key and delay.
///
/// # Examples
///
/// ```
/// use ruststream_fred::{Form, RedisPublish};
///
/// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
/// publisher.publish("jobs", &7u64).options(RedisPublish::default().form(Form::List)).await?;
/// publisher.publish("readings", &21.5f64).options(RedisPublish::default().max_length(10_000)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedisPublish {
    form: Option<Form>,
    id: Option<EntryId>,
    max_length: Option<u64>,
}

impl RedisPublish {
    /// Sets what the destination is: [that of the broker](crate::RedisBroker::form) unless set.
    pub fn form(mut self, form: Form) -> Self {
        self.form = Some(form);
        self
    }

    /// Sets the id of the entry of a stream, in place of the time of the server. It has to be greater than those of all entries, or the
    /// publish is refused: so a message that may have been sent before is not added twice. Not kept through a delay.
    pub fn id(mut self, id: EntryId) -> Self {
        self.id = Some(id);
        self
    }

    /// Removes the oldest entries of the stream beyond about so many, also those that no one has handled yet. A retention of the
    /// [subscription](crate::RedisStream::retention) removes none of those. Not kept through a delay.
    pub fn max_length(mut self, entries: u64) -> Self {
        self.max_length = Some(entries);
        self
    }
}

impl TransportOptions for RedisPublish {}

/// Sends messages. What many tasks publish at the same time shares round trips.
///
/// The destination of a message is the name of a stream, or what [`Form`] and [`RedisPublish`] say; none needs making. A
/// delayed message is kept in a sorted set beside it, and moved when it is due by any process that reads there.
#[derive(Clone)]
pub struct RedisPublisher {
    hub: Arc<Hub>,
    wakes: Wakes,
}

impl RedisPublisher {
    pub(crate) fn new(hub: Arc<Hub>, wakes: Wakes) -> Self {
        Self { hub, wakes }
    }

    fn check(&self, message: &Outgoing<'_>) -> Result<(), TransportError> {
        check_name(message.destination())?;
        let size = message.payload().len() + message.headers().size() + message.key().map_or(0, <[u8]>::len);
        let most = self.hub.settings().max_payload;
        if size > most {
            return Err(TransportError::new(
                ErrorKind::TooLarge,
                format!(
                    "a message to {:?} has {size} bytes and the limit is {most}: send less, or raise it with `.max_payload(..)` of \
                     the broker",
                    message.destination(),
                ),
            ));
        }
        Ok(())
    }

    /// What the destination of a message is.
    fn form(&self, message: &Outgoing<'_>) -> Form {
        let options = message.options::<RedisPublish>();
        options
            .and_then(|options| options.form)
            .unwrap_or(self.hub.settings().form)
    }

    async fn delay(&self, message: &Outgoing<'_>) -> Result<(), Failure> {
        if self.form(message) == Form::Stream {
            self.delay_entry(message).await
        } else {
            beside::delay(&self.hub, &self.wakes, message).await
        }
    }

    async fn delay_entry(&self, message: &Outgoing<'_>) -> Result<(), Failure> {
        let name = message.destination();
        let packed = message::pack(message, fastrand::u64(..));
        let after = time::millis(message.delay());
        DELAY
            .run(
                &self.hub,
                slot_of(name),
                &[&in_slot(name, "delayed"), &in_slot(name, "wake")],
                |values| {
                    values.push(after.into());
                    values.push(Value::Bytes(packed.clone()));
                },
            )
            .await?;
        self.wakes.due(name, Duration::from_millis(after.cast_unsigned()));
        Ok(())
    }

    async fn one(&self, message: &Outgoing<'_>) -> Result<(), Failure> {
        let form = self.form(message);
        self.hub
            .call(slot_of(message.destination()), word(form), || arguments(form, message))
            .await?;
        Ok(())
    }

    /// Sends messages at these positions, each node's in one pipeline.
    async fn many(&self, messages: &[Outgoing<'_>], positions: &[usize], failures: &mut Vec<(usize, TransportError)>) {
        // Those of one slot in order; on one server that is all of them.
        let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
        for &position in positions {
            let slot = if self.hub.settings().is_cluster() {
                slot_of(messages[position].destination())
            } else {
                0
            };
            match groups.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, group)) => group.push(position),
                None => groups.push((slot, vec![position])),
            }
        }
        for (slot, group) in groups {
            for part in group.chunks(PIPELINE) {
                self.pipeline(slot, messages, part, failures).await;
            }
        }
    }

    async fn pipeline(
        &self,
        slot: u16,
        messages: &[Outgoing<'_>],
        positions: &[usize],
        failures: &mut Vec<(usize, TransportError)>,
    ) {
        let commands = positions
            .iter()
            .map(|position| {
                let message = &messages[*position];
                let form = self.form(message);
                (word(form), arguments(form, message))
            })
            .collect();
        let answers = match self.hub.link(slot).await {
            Ok(link) => {
                let most = self.hub.settings().command_timeout;
                let answers = link.pipeline(commands, most).await;
                let moved =
                    |answer: &Result<Value, Failure>| matches!(answer, Err(failure) if failure.sign == Sign::Elsewhere);
                if answers.as_ref().is_ok_and(|answers| answers.iter().any(moved)) {
                    self.hub.forget(&link);
                }
                answers
            }
            Err(failure) => Err(failure),
        };
        let answers = match answers {
            Ok(answers) => answers,
            Err(failure) => {
                failures.extend(positions.iter().map(|position| (*position, failure.clone().into())));
                return;
            }
        };
        for (position, answer) in positions.iter().zip(answers) {
            match answer {
                Ok(_) => {}
                // It did not run; alone it is led to where its key went.
                Err(failure) if matches!(failure.sign, Sign::Elsewhere | Sign::Ask(_)) => {
                    if let Err(failure) = self.one(&messages[*position]).await {
                        failures.push((*position, failure.into()));
                    }
                }
                Err(failure) => failures.push((*position, failure.into())),
            }
        }
    }
}

impl Publish for RedisPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        if let [message] = messages {
            self.check(message)?;
            let sent = if message.delay().is_zero() {
                self.one(message).await
            } else {
                Box::pin(self.delay(message)).await
            };
            return Ok(sent.map_err(TransportError::from)?);
        }
        let mut failures = Vec::new();
        let mut at_once = Vec::with_capacity(messages.len());
        for (position, message) in messages.iter().enumerate() {
            if let Err(error) = self.check(message) {
                failures.push((position, error));
            } else if message.delay().is_zero() {
                at_once.push(position);
            } else if let Err(failure) = Box::pin(self.delay(message)).await {
                failures.push((position, failure.into()));
            }
        }
        self.many(messages, &at_once, &mut failures).await;
        match PublishError::some(failures) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for RedisPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisPublisher")
            .field("label", &self.hub.settings().label)
            .finish_non_exhaustive()
    }
}

/// What the destination of a message is, where names are `form` by default.
pub(crate) fn form_of(message: &Outgoing<'_>, form: Form) -> Form {
    let options = message.options::<RedisPublish>();
    options.and_then(|options| options.form).unwrap_or(form)
}

/// The command that sends a message.
pub(crate) fn word(form: Form) -> &'static str {
    match form {
        Form::Stream => "XADD",
        Form::List | Form::PlainList => "LPUSH",
        Form::Channel => "PUBLISH",
        Form::ShardedChannel => "SPUBLISH",
    }
}

/// Its arguments.
pub(crate) fn arguments(form: Form, message: &Outgoing<'_>) -> Vec<Value> {
    let destination = Value::Bytes(Bytes::copy_from_slice(message.destination().as_bytes()));
    if form != Form::Stream {
        return vec![destination, Value::Bytes(envelope::write(message, b""))];
    }
    let options = message.options::<RedisPublish>();
    let mut values = Vec::with_capacity(5 + message::count(message));
    values.push(destination);
    if let Some(length) = options.and_then(|options| options.max_length) {
        values.push(Value::from_static_str("MAXLEN"));
        values.push(Value::from_static_str("~"));
        values.push(i64::try_from(length).unwrap_or(i64::MAX).into());
    }
    match options.and_then(|options| options.id) {
        Some(id) => values.push(id.to_string().into()),
        None => values.push(Value::from_static_str("*")),
    }
    message::write_values(message, &mut values);
    values
}
