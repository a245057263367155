//! Sending messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::types::Value;
use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};

use crate::error::{Failure, Sign};
use crate::hub::Hub;
use crate::message;
use crate::names::{beside, check_name, slot_of};
use crate::script::Script;
use crate::stream::time;
use crate::wakes::Wakes;

/// How many commands go into one pipeline: bounds what one publish keeps of others waiting.
const PIPELINE: usize = 512;

/// Keeps a packed message until it is due. KEYS: delayed, wake; ARGV: milliseconds, packed message.
static DELAY: Script = Script::new(include_str!("stream/lua/delay.lua"));

/// Sends messages. What many tasks publish at the same time shares round trips.
///
/// The destination of a message is the name of a stream, which needs no making. A delayed message is kept in a sorted set
/// beside the stream, and moved into it when it is due by any process that reads the stream.
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

    async fn delay(&self, message: &Outgoing<'_>) -> Result<(), Failure> {
        let name = message.destination();
        let packed = message::pack(message, fastrand::u64(..));
        let after = time::millis(message.delay());
        DELAY
            .run(
                &self.hub,
                slot_of(name),
                &[&beside(name, "delayed"), &beside(name, "wake")],
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
        self.hub
            .call(slot_of(message.destination()), "XADD", || added(message))
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
            .map(|position| ("XADD", added(&messages[*position])))
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

/// The arguments of `XADD`.
fn added(message: &Outgoing<'_>) -> Vec<Value> {
    let mut values = Vec::with_capacity(2 + message::count(message));
    values.push(Value::Bytes(Bytes::copy_from_slice(message.destination().as_bytes())));
    values.push(Value::from_static_str("*"));
    message::write_values(message, &mut values);
    values
}
