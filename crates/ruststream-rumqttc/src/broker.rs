//! The settings of a server.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{LastWill, Login};
use ruststream::transport::{Broker, ErrorKind, Routes, TransportError};
use url::Url;

use crate::connection::MqttConnection;
use crate::filter::TopicFilter;
use crate::routes::Rules;
use crate::settings::{ClientId, Settings};
use crate::topic;
use crate::wire::MqttVersion;

const PORT: u16 = 1883;
const SECURE_PORT: u16 = 8883;

/// A server of MQTT 5 or 3.1.1.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::transport::Broker;
/// use ruststream_rumqttc::MqttBroker;
///
/// let broker = MqttBroker::new("mqtt://orders:secret@mqtt.example:1883")
///     .client_id("orders-1")
///     .session_expiry(Duration::from_secs(24 * 3600));
/// assert_eq!(broker.label(), "mqtt mqtt.example:1883");
/// ```
#[derive(Debug, Clone)]
pub struct MqttBroker {
    settings: Settings,
}

impl MqttBroker {
    /// The server at a URL such as `mqtt://user:password@host:1883`, or `mqtts://` for TLS (feature `tls`, port 8883 unless written).
    ///
    /// What is wrong with the URL is told by [`check`](Broker::check) and [`connect`](Broker::connect).
    pub fn new(url: impl AsRef<str>) -> Self {
        let parsed = parse(url.as_ref());
        let label = match &parsed {
            Ok(Parsed { host, port, .. }) => format!("mqtt {host}:{port}"),
            Err(_) => "mqtt".to_owned(),
        };
        #[cfg(feature = "tls")]
        let secure = parsed.as_ref().is_ok_and(|parsed| parsed.secure);
        let (address, login) = match parsed {
            Ok(parsed) => (Ok((parsed.host, parsed.port)), parsed.login),
            Err(wrong) => (Err(wrong), None),
        };
        Self {
            settings: Settings {
                address,
                label: label.into(),
                login,
                #[cfg(feature = "tls")]
                secure,
                #[cfg(feature = "tls")]
                tls: crate::tls::Tls::default(),
                #[cfg(feature = "tls")]
                connector: None,
                version: MqttVersion::V5,
                client_id: ClientId::Unique("ruststream".to_owned()),
                clean_start: false,
                session_expiry: Duration::from_mins(5),
                keep_alive: Duration::from_secs(5),
                connect_timeout: Duration::from_secs(5),
                call_timeout: Duration::from_secs(5),
                publish_timeout: Duration::from_secs(10),
                receive_maximum: 2048,
                // A payload of 1 MiB with its topic and headers.
                maximum_packet: (1024 + 64) * 1024,
                quality: QoS::AtLeastOnce,
                group: None,
                will: None,
            },
        }
    }

    /// Sets the version that is spoken with the server: [`MqttVersion::V5`] unless set.
    ///
    /// With [`MqttVersion::V3_1_1`], headers travel in an envelope around the payload (JSON without headers of its own stays as it is), and
    /// what the old version cannot do is an error: an expiry at the publish, `no_local`, `retain_as_published` and rules for retained
    /// messages when the subscription is opened. The server keeps a session until this client closes it; of a process that was killed,
    /// until `persistent_client_expiration` of Mosquitto, or what it is called elsewhere, ends it.
    #[must_use]
    pub fn version(mut self, version: MqttVersion) -> Self {
        self.settings.version = version;
        self
    }

    /// Gives the client a name of its own that stays, and with it a session that outlives the process: what is published while it is
    /// away waits for it, and what it left unsettled comes again.
    ///
    /// No other client may have that name: of two, each ends the other's link. Unless set, each connection has a name that no other
    /// has, and its session ends when it closes.
    #[must_use]
    pub fn client_id(mut self, name: impl Into<String>) -> Self {
        self.settings.client_id = ClientId::Fixed(name.into());
        self
    }

    /// Sets what the made-up client names begin with; `ruststream` unless set. Takes back [`client_id`](Self::client_id).
    #[must_use]
    pub fn client_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.client_id = ClientId::Unique(prefix.into());
        self
    }

    /// Throws away, when the first link is made, what an earlier process left in the session; it is kept unless set.
    #[must_use]
    pub fn clean_start(mut self, clean: bool) -> Self {
        self.settings.clean_start = clean;
        self
    }

    /// Sets how long the server keeps the session of a client without a link, in whole seconds; 5 minutes unless set. Zero: not at
    /// all, and what is published while a link is lost is lost too.
    #[must_use]
    pub fn session_expiry(mut self, expiry: Duration) -> Self {
        self.settings.session_expiry = expiry;
        self
    }

    /// Sets the user and the password, in the place of those in the URL.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.settings.login = Some(Login {
            username: user.into(),
            password: password.into(),
        });
        self
    }

    /// Trusts these certificates, in PEM, besides those that the system trusts: those of whoever signed the server's. For `mqtts://`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn trusted_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.trusted = Some(pem.into());
        self
    }

    /// Shows the server this certificate, with its key; both in PEM. For `mqtts://`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the message that the server publishes when the link is lost and not when the connection is closed.
    #[must_use]
    pub fn last_will(
        mut self,
        topic: impl Into<String>,
        payload: impl Into<Vec<u8>>,
        quality: QoS,
        retain: bool,
    ) -> Self {
        self.settings.will = Some(LastWill::new(topic, payload, quality, retain, None));
        self
    }

    /// Sets how long a link may be silent, in whole seconds: 5 unless set, 1 at least. Either side then takes it for lost, after
    /// half of that time again.
    #[must_use]
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.settings.keep_alive = interval.clamp(Duration::from_secs(1), Duration::from_secs(65_535));
        self
    }

    /// Sets how long an attempt to connect may take; 5 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take to answer a subscription or a ping; 5 s unless set.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = timeout;
        self
    }

    /// Sets how long a publish may take to be confirmed; 10 s unless set.
    #[must_use]
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.settings.publish_timeout = timeout;
        self
    }

    /// Sets how many messages of QoS 1 and 2 may be unsettled at once, over all subscriptions of a connection; 2,048 unless set, 1
    /// at least. It is also how many messages of QoS 0 a subscription keeps while its handlers are busy, before it drops the oldest.
    #[must_use]
    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.settings.receive_maximum = messages.max(1);
        self
    }

    /// Sets the largest packet that the server may send, in bytes; 1 MiB and 64 KiB for topic and headers unless set. The server
    /// keeps larger ones from this client.
    #[must_use]
    pub fn maximum_packet(mut self, bytes: u32) -> Self {
        self.settings.maximum_packet = bytes.max(64);
        self
    }

    /// Sets the quality of service of publishes, and of subscriptions by name: [`QoS::AtLeastOnce`] unless set.
    #[must_use]
    pub fn quality(mut self, quality: QoS) -> Self {
        self.settings.quality = quality;
        self
    }

    /// Shares the subscriptions by name among all clients that have set the same group: each message goes to one of them.
    ///
    /// Places for replies are not shared.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.settings.group = Some(group.into());
        self
    }
}

struct Parsed {
    host: String,
    port: u16,
    login: Option<Login>,
    #[cfg(feature = "tls")]
    secure: bool,
}

/// Reads a URL; the error says what is wrong without the password.
fn parse(text: &str) -> Result<Parsed, String> {
    let wrong = |what: &str| format!("the URL of the server is wrong: {what}; write mqtt://user:password@host:1883");
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    let secure = match url.scheme() {
        "mqtt" => false,
        "mqtts" if cfg!(feature = "tls") => true,
        "mqtts" => {
            return Err(
                "the URL of the server asks for TLS: it needs the feature `tls` of ruststream-rumqttc".to_owned(),
            );
        }
        "ws" | "wss" => return Err(wrong("websockets are not spoken here")),
        _ => return Err(wrong("it does not begin with mqtt:// or mqtts://")),
    };
    let host = url
        .host_str()
        .filter(|host| !host.is_empty())
        .ok_or_else(|| wrong("it has no host"))?;
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it goes on behind the port"));
    }
    let decode = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded
            .map(String::from)
            .map_err(|_| wrong("user or password is not UTF-8"))
    };
    let login = if url.username().is_empty() && url.password().is_none() {
        None
    } else {
        Some(Login {
            username: decode(url.username())?,
            password: decode(url.password().unwrap_or_default())?,
        })
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Parsed {
        host: host.to_owned(),
        port: url.port().unwrap_or(if secure { SECURE_PORT } else { PORT }),
        login,
        #[cfg(feature = "tls")]
        secure,
    })
}

impl Broker for MqttBroker {
    type Connection = MqttConnection;
    type Source = TopicFilter;

    fn label(&self) -> String {
        self.settings.label.to_string()
    }

    fn source(&self, name: &str) -> TopicFilter {
        let filter = TopicFilter::new(name).quality(self.settings.quality);
        match &self.settings.group {
            Some(group) => filter.group(group),
            None => filter,
        }
    }

    fn reply_source(&self, name: &str) -> TopicFilter {
        TopicFilter::new(name).quality(self.settings.quality)
    }

    fn routes(&self, _sources: &[&dyn Any]) -> Option<Box<dyn Routes>> {
        Some(Box::new(Rules(self.settings.clone())))
    }

    fn check(&self) -> Result<(), TransportError> {
        let invalid = |text: String| TransportError::new(ErrorKind::Invalid, text);
        if let Err(wrong) = &self.settings.address {
            return Err(invalid(wrong.clone()));
        }
        #[cfg(feature = "tls")]
        if self.settings.secure {
            self.settings.tls.connector().map_err(invalid)?;
        } else if self.settings.tls.is_set() {
            let text = "certificates are given, and the URL asks for no TLS: write mqtts://, or leave them out";
            return Err(invalid(text.to_owned()));
        }
        if let Some(will) = &self.settings.will {
            let name = String::from_utf8_lossy(&will.topic);
            topic::check_topic("the topic of the last will", &name)?;
        }
        if let ClientId::Fixed(name) = &self.settings.client_id
            && name.is_empty()
        {
            return Err(invalid("a client id is empty; name it, or leave it out".to_owned()));
        }
        Ok(())
    }

    async fn connect(&self) -> Result<MqttConnection, TransportError> {
        self.check()?;
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS adds something"))]
        let mut settings = self.settings.clone();
        #[cfg(feature = "tls")]
        if settings.secure {
            let made = settings.tls.connector();
            settings.connector = Some(made.map_err(|text| TransportError::new(ErrorKind::Invalid, text))?);
        }
        MqttConnection::open(Arc::new(settings)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        for url in [
            "mqtt://user:secret@host:1",
            "http://user:secret@host",
            "mqtt://user:secret@host:none",
        ] {
            let broker = MqttBroker::new(url);
            let told = format!("{} {:?} {:?}", broker.label(), broker, broker.check().err());
            assert!(!told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn a_url_is_read_with_its_parts_decoded() {
        let parsed = parse("mqtt://us%40er:p%3Ass@[::1]").ok().unwrap();
        assert_eq!((parsed.host.as_str(), parsed.port), ("::1", 1883));
        let login = parsed.login.unwrap();
        assert_eq!((login.username.as_str(), login.password.as_str()), ("us@er", "p:ss"));
    }
}
