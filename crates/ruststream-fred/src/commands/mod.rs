//! Commands of a handler's own that travel with the ack of its message.

mod extract;
mod run;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fred::types::Value;
use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, TransportError};

pub(crate) use run::{Place, run};

use crate::link::Command;
use crate::names::{check_name, slot_of};
use crate::publish::form_of;
use crate::sending::Sending;
use crate::source::Form;

/// How what a handler queues is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the round trip of the acks of many messages.
    Pipeline,
    /// As [`Mode::Pipeline`], and the server is asked of each message whether this consumer still holds it.
    Atomic,
}

/// What a handler queued: sent when its message is acked, and dropped when it is retried, given back or a dead letter.
///
/// A subscription has it where its source says [`pipeline`](crate::RedisStream::pipeline) or [`atomic`](crate::RedisStream::atomic): a
/// stream, a list or a channel. A command that fails by itself, such as one on a key of another type, is told in the log and does not undo
/// the others, as in all transactions of Redis. One that waits (`BLPOP`), or that no script may run (`SUBSCRIBE`), cannot be queued.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
/// use ruststream::transport::TransportError;
/// use ruststream_fred::RedisCommands;
///
/// #[subscriber("orders")]
/// async fn count(order: u64, commands: RedisCommands) -> Result<(), TransportError> {
///     commands.queue("INCR", ["orders:count"])
/// }
/// ```
#[derive(Clone)]
pub struct RedisCommands {
    queued: Arc<Mutex<Vec<Command>>>,
    /// That of the source, where it matters.
    slot: Option<u16>,
    form: Form,
}

impl RedisCommands {
    pub(crate) fn new(slot: Option<u16>, form: Form) -> Self {
        Self {
            queued: Arc::default(),
            slot,
            form,
        }
    }

    /// Queues a command, the key first among its arguments. Its answer is not waited for; an error of the server is told in the log.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] on a cluster where the key lies in another slot than the stream, the list or the channel: give both one hash tag.
    pub fn queue<A: Into<Bytes>>(
        &self,
        command: &'static str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), TransportError> {
        let arguments: Vec<Bytes> = arguments.into_iter().map(Into::into).collect();
        if let Some(key) = arguments.first() {
            self.check_slot(&String::from_utf8_lossy(key))?;
        }
        self.push((command, arguments.into_iter().map(Value::Bytes).collect()));
        Ok(())
    }

    /// Queues a publish. Its delay is not kept: publish what is to wait by a publisher.
    ///
    /// # Errors
    ///
    /// As [`queue`](Self::queue), and where the destination can be no name.
    pub fn publish(&self, message: &Outgoing<'_>) -> Result<(), TransportError> {
        check_name(message.destination())?;
        self.check_slot(message.destination())?;
        let form = form_of(message, self.form);
        self.push(Sending::new(form, message).into_command());
        Ok(())
    }

    /// Drops what was queued: for a handler that ends with `HandlerOutcome::drop`, which acks its message.
    pub fn clear(&self) {
        self.queued().clear();
    }

    /// For another attempt at the same message: empty, and what the one before still queues is not in it.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.slot, self.form)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued().is_empty()
    }

    fn push(&self, command: Command) {
        self.queued().push(command);
    }

    fn queued(&self) -> MutexGuard<'_, Vec<Command>> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_slot(&self, key: &str) -> Result<(), TransportError> {
        match self.slot {
            Some(slot) if slot_of(key) != slot => Err(TransportError::new(
                ErrorKind::Invalid,
                format!(
                    "the key {key:?} lies in another slot of the cluster than the source of the message, so that its commands cannot travel with the \
                     ack: give both one hash tag, such as {{shop}}orders and {{shop}}count"
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for RedisCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCommands")
            .field("queued", &self.queued().len())
            .finish_non_exhaustive()
    }
}

impl PartialEq for RedisCommands {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queued, &other.queued)
    }
}

impl Eq for RedisCommands {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_cluster_keys_of_other_slots_are_refused_with_the_fix() {
        let commands = RedisCommands::new(Some(slot_of("{shop}orders")), Form::Stream);
        assert!(commands.queue("INCR", ["{shop}count"]).is_ok());
        let error = commands.queue("INCR", ["count"]).expect_err("another slot");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("hash tag"), "{error}");
        assert!(commands.publish(&Outgoing::new("receipts", b"1")).is_err());
        assert_eq!(commands.queued().len(), 1);
        commands.clear();
        assert!(commands.queued().is_empty());
        assert!(RedisCommands::new(None, Form::Stream).queue("INCR", ["count"]).is_ok());
    }
}
