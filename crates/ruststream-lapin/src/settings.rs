//! What all parts of a connection are told by the broker's settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::uri::AMQPUri;

use crate::queue::QueueType;
use crate::topology::Topology;

#[derive(Clone)]
pub(crate) struct Settings {
    /// The URL, or why it is none; told when connecting.
    pub(crate) uri: Result<AMQPUri, String>,
    /// The server for people: without the password.
    pub(crate) label: Arc<str>,
    /// How the server is trusted and shown who connects, over TLS.
    pub(crate) tls: Tls,
    pub(crate) connection_name: String,
    pub(crate) heartbeat: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) queue_type: QueueType,
    pub(crate) mandatory: bool,
    pub(crate) topology: Topology,
}

/// Certificates, all in PEM.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// Those that are trusted besides the system's.
    pub(crate) trusted: Option<String>,
    /// What this process shows of itself: certificate and key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Without the password and the key.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("server", &self.label)
            .field("connection_name", &self.connection_name)
            .field("heartbeat", &self.heartbeat)
            .field("queue_type", &self.queue_type)
            .field("mandatory", &self.mandatory)
            .field("topology", &self.topology)
            .finish_non_exhaustive()
    }
}
