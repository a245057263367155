//! What is set for every kind of server.

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Which database it is, for people; without secrets.
    pub(crate) label: String,
    pub(crate) poll_interval: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    /// Whether the crate makes and migrates its tables, or only checks that they are there.
    pub(crate) migrate: bool,
}

impl Settings {
    pub(crate) fn new(label: String) -> Self {
        Self {
            label,
            poll_interval: Duration::from_millis(250),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            migrate: true,
        }
    }
}
