//! What all parts of a connection are told by the broker's settings.

use std::sync::Arc;
use std::time::Duration;

use lapin::uri::AMQPUri;

use crate::queue::QueueType;
use crate::topology::Topology;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The URL, or why it is none; told when connecting.
    pub(crate) uri: Result<AMQPUri, String>,
    /// The server for people: without the password.
    pub(crate) label: Arc<str>,
    pub(crate) connection_name: String,
    pub(crate) heartbeat: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) queue_type: QueueType,
    pub(crate) mandatory: bool,
    pub(crate) topology: Topology,
}
