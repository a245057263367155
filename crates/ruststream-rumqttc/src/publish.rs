//! Publishing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::{Publish as Packet, PublishProperties};
use ruststream::message::Outgoing;
use ruststream::transport::{ErrorKind, Publish, PublishError, TransportError};
use tokio::time::timeout;

use crate::options::MqttOptions;
use crate::outbound::{Group, Letter, unwritable};
use crate::settings::Settings;
use crate::shared::{Shared, Status};
use crate::wire::MqttVersion;
use crate::{properties, topic};

/// Publishes to topics: each message is acknowledged by the server, save at QoS 0, and many are on their way at once.
///
/// The destination of a message is its topic. What is to be otherwise is said by [`MqttOptions`].
#[derive(Clone)]
pub struct MqttPublisher {
    shared: Arc<Shared>,
}

impl MqttPublisher {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn late(&self, most: Duration) -> TransportError {
        let status = self.shared.status().borrow().clone();
        let why = match status {
            Status::Down(failure) => failure.text,
            _ => format!("{} has not acknowledged it", self.shared.settings.label),
        };
        let text = format!("a message was not confirmed within {most:?}: {why}");
        TransportError::new(ErrorKind::Timeout, text)
    }
}

/// A message as it travels in MQTT 5; an error where it cannot.
pub(crate) fn packet(settings: &Settings, message: &Outgoing<'_>) -> Result<Packet, TransportError> {
    let name = message.destination();
    topic::check_topic("the topic to publish to", name)?;
    if !message.delay().is_zero() {
        let text = format!(
            "a message to `{name}` is to be kept back for {:?}, which MQTT does not do",
            message.delay()
        );
        return Err(TransportError::new(ErrorKind::Invalid, text));
    }
    let options = message.options::<MqttOptions>();
    if settings.version == MqttVersion::V3_1_1 && options.is_some_and(|options| options.expiry.is_some()) {
        let text = format!(
            "a message to `{name}` is to expire, which MQTT 3.1.1 does not do: leave `expiry` out, or speak MQTT 5 with the server"
        );
        return Err(TransportError::new(ErrorKind::Invalid, text));
    }
    let mut found = PublishProperties::default();
    properties::encode(message.headers(), message.key(), &mut found)?;
    if let Some(options) = options {
        found.message_expiry_interval = options
            .expiry
            .map(|expiry| u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX));
        found.payload_format_indicator = options.text.then_some(1);
    }
    Ok(Packet {
        qos: options.and_then(|options| options.quality).unwrap_or(settings.quality),
        retain: options.is_some_and(|options| options.retain),
        topic: Bytes::copy_from_slice(name.as_bytes()),
        payload: Bytes::copy_from_slice(message.payload()),
        properties: (found != PublishProperties::default()).then_some(found),
        ..Packet::default()
    })
}

/// Says, when the call is dropped, that nobody waits for it.
struct Waiting(Arc<Group>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Publish for MqttPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        let waiting = Waiting(Group::new(messages.len()));
        let group = &waiting.0;
        let mut letters = Vec::with_capacity(messages.len());
        for (place, message) in messages.iter().enumerate() {
            let settings = &self.shared.settings;
            let packet = packet(settings, message);
            match packet.and_then(|packet| settings.version.sealed(packet).map_err(unwritable)) {
                Ok(publish) => letters.push(Letter {
                    publish,
                    group: group.clone(),
                    place,
                }),
                Err(error) => group.end(place, Some(error)),
            }
        }
        if matches!(*self.shared.status().borrow(), Status::Closed) {
            return Err(self.shared.closed().into());
        }
        {
            let mut state = self.shared.state();
            for letter in letters {
                state.outbound.push(letter);
            }
        }
        self.shared.work.notify_one();
        let most = self.shared.settings.publish_timeout;
        let is_late = timeout(most, group.wait()).await.is_err();
        let failures = group.close(|| self.late(most));
        if is_late {
            self.shared.state().outbound.forget_abandoned();
        }
        PublishError::some(failures).map_or(Ok(()), Err)
    }
}

impl fmt::Debug for MqttPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttPublisher")
            .field("server", &self.shared.settings.label)
            .finish_non_exhaustive()
    }
}
