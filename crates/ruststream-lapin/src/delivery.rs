//! One message in hand.

use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::types::{FieldTable, ShortString};
use ruststream::message::HeaderMap;
use ruststream::transport::Delivery;

use crate::beside::LapinTransaction;
use crate::deaths::{Death, deaths};
use crate::properties::{self, own};

/// A message in hand.
pub struct QueueDelivery {
    pub(crate) message: Box<Message>,
}

/// What is left of a delivery: the right to settle it, while its channel lives.
pub struct QueueReceipt {
    pub(crate) message: Box<Message>,
}

/// What RabbitMQ knows of a delivery besides.
#[derive(Debug)]
pub struct MessageFields {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) redelivered: bool,
    pub(crate) tag: u64,
    pub(crate) properties: BasicProperties,
    pub(crate) transaction: Option<LapinTransaction>,
}

/// One box for all of it, which goes from the delivery to its receipt: a retry needs the whole message once more.
pub(crate) struct Message {
    pub(crate) epoch: u64,
    pub(crate) attempt: u32,
    unfinished: bool,
    headers: HeaderMap,
    pub(crate) fields: MessageFields,
    pub(crate) payload: Vec<u8>,
}

impl MessageFields {
    /// The exchange that the message was published to; empty for the default one.
    pub fn exchange(&self) -> &str {
        self.exchange.as_str()
    }

    /// The routing key that the message was published with.
    pub fn routing_key(&self) -> &str {
        self.routing_key.as_str()
    }

    /// Whether the server has handed it out before. A retry is a message of its own, and not marked so.
    pub fn redelivered(&self) -> bool {
        self.redelivered
    }

    /// The number of the delivery on its channel.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Its place in the [stream](crate::Queue::stream) that it was read from; `None` for other queues.
    pub fn stream_offset(&self) -> Option<u64> {
        properties::number(&self.properties, properties::STREAM_OFFSET)
    }

    /// Why and how often the server dead-lettered the message on its way here, the latest first. The steps of a delay are not among them.
    pub fn deaths(&self) -> Vec<Death> {
        deaths(&self.properties)
    }

    /// What the handler publishes together with the ack, where the subscription is [transactional](crate::Queue::transactional).
    pub fn transaction(&self) -> Option<&LapinTransaction> {
        self.transaction.as_ref()
    }

    /// All properties and the header table, with the types that they came with.
    pub fn properties(&self) -> &BasicProperties {
        &self.properties
    }
}

impl Message {
    pub(crate) fn new(epoch: u64, delivery: lapin::message::Delivery) -> Self {
        let properties = delivery.properties;
        let mut exchange = delivery.exchange;
        let mut routing_key = delivery.routing_key;
        let mut attempt = 1;
        let mut unfinished = false;
        if properties.headers().is_some() {
            let made = properties::number(&properties, own::ATTEMPTS).unwrap_or_default();
            let count = properties::number(&properties, properties::DELIVERY_COUNT).unwrap_or_default();
            attempt = u32::try_from(made.saturating_add(count).saturating_add(1)).unwrap_or(u32::MAX);
            unfinished = count > 0 || properties::has(&properties, own::UNFINISHED);
            if let Some(original) = properties::short_text(&properties, own::ROUTING_KEY) {
                routing_key = original;
                exchange = properties::short_text(&properties, own::EXCHANGE).unwrap_or_default();
            }
        }
        Self {
            epoch,
            attempt,
            unfinished,
            headers: properties::decode(&properties),
            fields: MessageFields {
                exchange,
                routing_key,
                redelivered: delivery.redelivered,
                tag: delivery.delivery_tag,
                properties,
                transaction: None,
            },
            payload: delivery.data,
        }
    }

    /// Whether it was handed out before, by a queue that does not count: how often, only a copy of it can keep.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.fields.redelivered && properties::number(&self.fields.properties, properties::DELIVERY_COUNT).is_none()
    }

    /// Has it handed out again, after so many attempts.
    pub(crate) fn again(&mut self, made: u32, unfinished: bool) {
        self.attempt = made.saturating_add(1);
        self.unfinished = unfinished;
    }

    /// Whether the delivery before this one never ended.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A number that two different messages hardly share.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.payload.hash(&mut hasher);
        self.attempt.hash(&mut hasher);
        self.fields.routing_key.hash(&mut hasher);
        self.fields.properties.timestamp().hash(&mut hasher);
        for (name, value) in self.headers.iter() {
            (name, value).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The header table as it was published, without what the server and this crate added.
    pub(crate) fn published_headers(&self) -> FieldTable {
        let mut table = FieldTable::default();
        if let Some(all) = self.fields.properties.headers() {
            // The two lists of further routing keys have been followed already.
            let kept =
                |name: &str| (!properties::is_hidden(name) || name == own::ORDER) && !matches!(name, "CC" | "BCC");
            for (name, value) in all.inner() {
                if kept(name.as_str()) {
                    table.insert(name.clone(), value.clone());
                }
            }
        }
        table
    }
}

impl Delivery for QueueDelivery {
    type Receipt = QueueReceipt;

    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    fn headers(&self) -> &HeaderMap {
        &self.message.headers
    }

    fn attempt(&self) -> u32 {
        self.message.attempt
    }

    fn is_unfinished(&self) -> bool {
        self.message.unfinished
    }

    fn published_at(&self) -> Option<SystemTime> {
        let seconds = (*self.message.fields.properties.timestamp())?;
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        &self.message.fields
    }

    fn attempt_failed(&mut self) {
        let transaction = &mut self.message.fields.transaction;
        *transaction = transaction.as_ref().map(LapinTransaction::anew);
    }

    fn into_receipt(self) -> QueueReceipt {
        QueueReceipt { message: self.message }
    }
}

impl fmt::Debug for QueueDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueDelivery")
            .field("tag", &self.message.fields.tag)
            .field("attempt", &self.message.attempt)
            .field("payload_bytes", &self.message.payload.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for QueueReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueReceipt")
            .field("tag", &self.message.fields.tag)
            .finish_non_exhaustive()
    }
}
