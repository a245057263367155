//! Publishing what takes more than one command: delayed messages, those that are stored once, and transactions.

use std::time::Duration;

use fred::types::Value;
use ruststream::message::{Outgoing, header};
use ruststream::transport::{ErrorKind, TransportError};

use super::RedisPublish;
use crate::error::Failure;
use crate::hub::Hub;
use crate::names::{beside as in_slot, slot_of};
use crate::script::Script;
use crate::sending::Sending;
use crate::source::Form;
use crate::stream::time::millis;
use crate::wakes::Wakes;
use crate::{beside, envelope, message, reply};

static PUBLISH: Script = Script::new(include_str!("lua/publish.lua"));

/// A message and what its destination is.
pub(super) type Shaped<'a> = (Form, &'a Outgoing<'a>);

/// Whether one command does not do.
pub(super) fn is_needed(message: &Outgoing<'_>) -> bool {
    let options = message.options::<RedisPublish>();
    !message.delay().is_zero() || options.is_some_and(|options| options.transaction || options.once.is_some())
}

/// Says what is wrong with what is asked.
pub(super) fn check(message: &Outgoing<'_>) -> Result<(), TransportError> {
    let options = message.options::<RedisPublish>();
    if options.is_some_and(|options| options.once.is_some()) && message.headers().get(header::MESSAGE_ID).is_none() {
        return Err(TransportError::new(
            ErrorKind::Invalid,
            format!(
                "a message to {:?} is to be stored once and has no id: set the header `{}`",
                message.destination(),
                header::MESSAGE_ID
            ),
        ));
    }
    Ok(())
}

/// Says it where messages that belong together lie in several slots of a cluster.
pub(super) fn check_slots(messages: &[Shaped<'_>]) -> Result<(), TransportError> {
    let Some(((_, first), rest)) = messages.split_first() else {
        return Ok(());
    };
    let slot = slot_of(first.destination());
    match rest.iter().find(|(_, one)| slot_of(one.destination()) != slot) {
        None => Ok(()),
        Some((_, other)) => Err(TransportError::new(
            ErrorKind::Invalid,
            format!(
                "a transaction cannot span {:?} and {:?}, which lie in other slots of the cluster: give both one hash tag, such as \
                 {{shop}}orders and {{shop}}receipts",
                first.destination(),
                other.destination()
            ),
        )),
    }
}

/// Publishes messages all together, in one slot.
pub(super) async fn publish(hub: &Hub, wakes: &Wakes, messages: &[Shaped<'_>]) -> Result<(), Failure> {
    let Some((_, first)) = messages.first() else {
        return Ok(());
    };
    let first = first.destination();
    let mut words = Vec::new();
    for (form, message) in messages {
        write(*form, message, &mut words);
    }
    PUBLISH
        .run(hub, slot_of(first), &[first], |values| {
            values.extend(words.iter().cloned());
        })
        .await?;
    for (_, message) in messages {
        if !message.delay().is_zero() {
            let after = millis(message.delay()).cast_unsigned();
            wakes.due(message.destination(), Duration::from_millis(after));
        }
    }
    Ok(())
}

fn write(form: Form, message: &Outgoing<'_>, words: &mut Vec<Value>) {
    let name = message.destination();
    let once = message.options::<RedisPublish>().and_then(|options| options.once);
    let id = message.headers().get(header::MESSAGE_ID).unwrap_or_default();
    words.push(match once {
        None => Value::from_static_str(""),
        Some(_) => Value::Bytes([in_slot(name, "once:").as_bytes(), id].concat().into()),
    });
    words.push(millis(once.unwrap_or_default()).max(1).into());
    if message.delay().is_zero() {
        let (word, arguments) = Sending::new(form, message).into_command();
        words.push(Value::from_static_str("now"));
        words.push(Value::from_static_str(match form {
            Form::Stream => "stream",
            Form::List | Form::PlainList => "list",
            Form::Channel | Form::ShardedChannel => "",
        }));
        words.push(reply::count(1 + arguments.len()));
        words.push(Value::from_static_str(word));
        words.extend(arguments);
        return;
    }
    let unique = fastrand::u64(..);
    let (how, packed, wake) = if form == Form::Stream {
        ("entry", message::pack(message, unique), in_slot(name, "wake"))
    } else {
        let number = format!("{unique:016x}");
        let packed = envelope::write(message, number.as_bytes());
        ("item", packed, beside::bell_of(name))
    };
    words.push(Value::from_static_str(how));
    words.push(Value::from_static_str("zset"));
    words.push(reply::count(4));
    words.push(millis(message.delay()).into());
    words.push(in_slot(name, "delayed").into());
    words.push(packed.into());
    words.push(wake.into());
}
