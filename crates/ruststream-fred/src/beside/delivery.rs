//! A message of a list or a channel in hand.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ruststream::message::HeaderMap;
use ruststream::transport::Delivery;

use super::Beside;
use crate::commands::RedisCommands;
use crate::envelope;
use crate::lease::Held;

/// A message of a list or a channel in hand.
pub struct ItemDelivery {
    payload: Bytes,
    headers: HeaderMap,
    attempt: u32,
    unfinished: bool,
    item: RedisItem,
    receipt: ItemReceipt,
}

/// Where a message of a list or a channel came from: lent through [`Delivery::fields`], where extractors find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisItem {
    /// The list, the channel, or the pattern where the message was kept back meanwhile.
    name: Name,
    commands: Option<RedisCommands>,
}

#[derive(Debug, Clone)]
enum Name {
    Own(Arc<str>),
    Told(fred::bytes_utils::Str),
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Self::Own(name) => name,
            Self::Told(name) => name,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Name {}

impl RedisItem {
    /// The key of the list, or the name of the channel, also where the subscription is to a pattern.
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// Where the handler queues commands of its own, if its source says so: [of a list](crate::RedisList::pipeline), [of a
    /// channel](crate::RedisChannel::pipeline).
    pub fn commands(&self) -> Option<&RedisCommands> {
        self.commands.as_ref()
    }
}

/// What is left of a message of a list or a channel.
pub struct ItemReceipt {
    pub(crate) kind: ReceiptKind,
    pub(crate) commands: Option<RedisCommands>,
}

pub(crate) enum ReceiptKind {
    /// The server holds it for this consumer.
    Held(Held),
    /// No one holds it.
    Given { name: Bytes, value: Bytes },
}

impl ItemDelivery {
    /// A message that the server holds.
    pub(crate) fn held(beside: &Beside, value: &Bytes, unfinished: bool, held: Held) -> Self {
        let (payload, headers) = envelope::read(value);
        Self {
            payload,
            headers,
            attempt: attempt_of(held.id()),
            unfinished,
            item: RedisItem {
                name: Name::Own(Arc::clone(&beside.name)),
                commands: beside.commands(),
            },
            receipt: ItemReceipt {
                kind: ReceiptKind::Held(held),
                commands: None,
            },
        }
    }

    /// A message that no one holds, taken from a list or kept back meanwhile.
    pub(crate) fn given(beside: &Beside, name: Bytes, value: Bytes) -> Self {
        Self::of(beside, Name::Own(Arc::clone(&beside.name)), name, value)
    }

    /// A message that a channel has just brought.
    pub(crate) fn told(beside: &Beside, channel: fred::bytes_utils::Str, value: Bytes) -> Self {
        // Those that come again are numbered by when they came, nearly: enough for their order.
        Self::of(beside, Name::Told(channel), Bytes::from_static(b"1-1"), value)
    }

    fn of(beside: &Beside, from: Name, name: Bytes, value: Bytes) -> Self {
        let (payload, headers) = envelope::read(&value);
        Self {
            payload,
            headers,
            attempt: attempt_of(&name),
            unfinished: false,
            item: RedisItem {
                name: from,
                commands: beside.commands(),
            },
            receipt: ItemReceipt {
                kind: ReceiptKind::Given { name, value },
                commands: None,
            },
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(&self.receipt.kind, ReceiptKind::Held(held) if held.is_lost())
    }

    pub(crate) fn size(&self) -> usize {
        self.payload.len()
    }
}

impl ItemReceipt {
    /// The number of the message and the attempt.
    pub(crate) fn name(&self) -> &Bytes {
        match &self.kind {
            ReceiptKind::Held(held) => held.id(),
            ReceiptKind::Given { name, .. } => name,
        }
    }
}

fn attempt_of(name: &[u8]) -> u32 {
    let attempt = name.rsplit(|byte| *byte == b'-').next();
    attempt
        .and_then(|attempt| std::str::from_utf8(attempt).ok()?.parse().ok())
        .unwrap_or(1)
}

impl Delivery for ItemDelivery {
    type Receipt = ItemReceipt;

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    fn lease_id(&self) -> u64 {
        match &self.receipt.kind {
            ReceiptKind::Held(held) => held.lease_id(),
            ReceiptKind::Given { .. } => 0,
        }
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        &self.item
    }

    fn attempt_failed(&mut self) {
        self.item.commands = self.item.commands.as_ref().map(RedisCommands::anew);
    }

    fn into_receipt(self) -> ItemReceipt {
        ItemReceipt {
            commands: self.item.commands,
            ..self.receipt
        }
    }
}

impl fmt::Debug for ItemDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemDelivery")
            .field("item", &self.item)
            .field("attempt", &self.attempt)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ItemReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemReceipt")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}
