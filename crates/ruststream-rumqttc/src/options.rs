//! What a publish can say that only MQTT knows.

use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use ruststream::message::TransportOptions;

/// What a publish can say that only MQTT knows.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream_rumqttc::MqttOptions;
///
/// # async fn example(publisher: ruststream::publish::Publisher) -> Result<(), ruststream::transport::PublishError> {
/// publisher.publish("devices/7/state", &1u8).options(MqttOptions::new().retain()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MqttOptions {
    pub(crate) quality: Option<QoS>,
    pub(crate) retain: bool,
    pub(crate) expiry: Option<Duration>,
    pub(crate) text: bool,
}

impl MqttOptions {
    /// Nothing set: the quality of the broker's settings, not retained, no expiry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the quality of service. At 0 a publish is confirmed as soon as it is on its way, and may be lost.
    #[must_use]
    pub fn quality(mut self, quality: QoS) -> Self {
        self.quality = Some(quality);
        self
    }

    /// Has the server keep the message as the last of its topic, for those who subscribe later. An empty payload removes it.
    #[must_use]
    pub fn retain(mut self) -> Self {
        self.retain = true;
        self
    }

    /// Sets after how long, in whole seconds, the server need no longer deliver it.
    #[must_use]
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Says that the payload is UTF-8 text, which receivers may check.
    #[must_use]
    pub fn text(mut self) -> Self {
        self.text = true;
        self
    }
}

impl TransportOptions for MqttOptions {}
