//! One message in hand.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Publish, PublishProperties};
use ruststream::message::HeaderMap;
use ruststream::transport::Delivery;

use crate::{properties, topic};

/// A message in hand.
pub struct MqttDelivery {
    pub(crate) receipt: MqttReceipt,
}

/// What is left of a delivery: the right to settle it, while its link lives.
pub struct MqttReceipt {
    pub(crate) message: Arc<Message>,
    pub(crate) epoch: u32,
    pub(crate) subscription: u32,
    pub(crate) attempt: u32,
    pub(crate) unfinished: bool,
}

/// What MQTT knows of a message besides: `message.fields::<MessageFields>()`.
#[derive(Debug)]
pub struct MessageFields {
    topic: Bytes,
    quality: QoS,
    retained: bool,
    duplicate: bool,
    packet_id: u16,
    properties: Option<Box<PublishProperties>>,
}

/// One for all subscriptions that got it.
pub(crate) struct Message {
    /// Its place in what came.
    pub(crate) serial: u64,
    headers: HeaderMap,
    fields: MessageFields,
    payload: Bytes,
}

impl MessageFields {
    /// The topic that the message was published to.
    pub fn topic(&self) -> &str {
        // Checked when it came.
        std::str::from_utf8(&self.topic).unwrap_or_default()
    }

    /// The levels of the topic that the wildcards of `filter` stand for, in their order; those of `#` as one. `None` where the message
    /// is not for that filter.
    pub fn levels(&self, filter: &str) -> Option<Vec<&str>> {
        topic::matched(topic::split_group(filter).1, self.topic())
    }

    /// The quality of service that it was delivered with.
    pub fn quality(&self) -> QoS {
        self.quality
    }

    /// Whether it is the last of its topic, kept by the server, and not a new one.
    pub fn retained(&self) -> bool {
        self.retained
    }

    /// Whether the server may have delivered it before.
    pub fn duplicate(&self) -> bool {
        self.duplicate
    }

    /// Its number on the link; 0 at QoS 0.
    pub fn packet_id(&self) -> u16 {
        self.packet_id
    }

    /// Its properties, save the user properties, which are headers; `None` where it has none.
    pub fn properties(&self) -> Option<&PublishProperties> {
        self.properties.as_deref()
    }
}

impl Message {
    /// `None` if the topic is no text, which no server lets pass.
    pub(crate) fn new(serial: u64, publish: Publish) -> Option<Self> {
        std::str::from_utf8(&publish.topic).ok()?;
        let mut properties = publish.properties;
        let headers = properties.as_mut().map(properties::decode).unwrap_or_default();
        let fields = MessageFields {
            topic: publish.topic,
            quality: publish.qos,
            retained: publish.retain,
            duplicate: publish.dup,
            packet_id: publish.pkid,
            // That of the subscription comes with each message, and is of no use to anyone else.
            properties: properties
                .map(|properties| PublishProperties {
                    subscription_identifiers: Vec::new(),
                    ..properties
                })
                .filter(|properties| *properties != PublishProperties::default())
                .map(Box::new),
        };
        Some(Self {
            serial,
            headers,
            fields,
            payload: publish.payload,
        })
    }

    pub(crate) fn fields(&self) -> &MessageFields {
        &self.fields
    }

    pub(crate) fn into_fields(self) -> MessageFields {
        self.fields
    }
}

impl Delivery for MqttDelivery {
    type Receipt = MqttReceipt;

    fn payload(&self) -> &[u8] {
        &self.receipt.message.payload
    }

    fn headers(&self) -> &HeaderMap {
        &self.receipt.message.headers
    }

    fn attempt(&self) -> u32 {
        self.receipt.attempt
    }

    fn is_unfinished(&self) -> bool {
        self.receipt.unfinished
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        &self.receipt.message.fields
    }

    fn into_receipt(self) -> MqttReceipt {
        self.receipt
    }
}

impl fmt::Debug for MqttDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttDelivery")
            .field("topic", &self.receipt.message.fields.topic())
            .field("attempt", &self.receipt.attempt)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MqttReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttReceipt")
            .field("packet_id", &self.message.fields.packet_id)
            .finish_non_exhaustive()
    }
}
