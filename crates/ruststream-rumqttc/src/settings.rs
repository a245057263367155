//! What all parts of a connection are told by the broker's settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{LastWill, Login};

use crate::wire::MqttVersion;

#[derive(Clone)]
pub(crate) struct Settings {
    /// Host and port, or why the URL has none; told when connecting.
    pub(crate) address: Result<(String, u16), String>,
    /// The server for people: without the password.
    pub(crate) label: Arc<str>,
    pub(crate) version: MqttVersion,
    /// Whether the URL asks for TLS.
    #[cfg(feature = "tls")]
    pub(crate) secure: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: crate::tls::Tls,
    /// Made of those when the broker connects.
    #[cfg(feature = "tls")]
    pub(crate) connector: Option<tokio_rustls::TlsConnector>,
    pub(crate) login: Option<Login>,
    pub(crate) client_id: ClientId,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) receive_maximum: u16,
    pub(crate) maximum_packet: u32,
    pub(crate) quality: QoS,
    pub(crate) group: Option<String>,
    pub(crate) will: Option<LastWill>,
}

/// By what name the server knows the client.
#[derive(Debug, Clone)]
pub(crate) enum ClientId {
    /// This prefix, and a number that no other connection has.
    Unique(String),
    /// This one, for ever: the session outlives the process.
    Fixed(String),
}

impl Settings {
    /// Whether the session is to outlive the connection.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self.client_id, ClientId::Fixed(_)) && !self.session_expiry.is_zero()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("server", &self.label)
            .field("client_id", &self.client_id)
            .field("session_expiry", &self.session_expiry)
            .field("receive_maximum", &self.receive_maximum)
            .finish_non_exhaustive()
    }
}
