//! What is set for every kind of server.

use std::time::Duration;

use ruststream::transport::{ErrorKind, TransportError};

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Which database it is, for people; without secrets.
    pub(crate) label: String,
    pub(crate) poll_interval: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    /// How many transactions of subscriptions by row lock may be open at once.
    pub(crate) lock_connections: usize,
    /// How many connections there may be in all; any number unless set.
    pub(crate) max_connections: Option<usize>,
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
            lock_connections: 16,
            max_connections: None,
            migrate: true,
        }
    }
}

/// How many connections keep the queues going, whatever handlers do: claims, receipts, publishes, leases, the tools of people (two), what
/// hears of new messages, and two for tables of the user's own.
const HOUSEKEEPING: usize = 9;

impl Settings {
    /// An error where there are too few connections.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        match self.max_connections {
            Some(most) if most <= HOUSEKEEPING => Err(TransportError::new(
                ErrorKind::Invalid,
                format!(
                    "{} connections to {} are too few: {HOUSEKEEPING} keep the queues going and handlers need at least one; set \
                     `.max_connections({})` or more",
                    most,
                    self.label,
                    HOUSEKEEPING + 1
                ),
            )),
            _ => Ok(()),
        }
    }

    /// How many connections handlers may have: for their transactions, and for locked rows.
    pub(super) fn for_handlers(&self) -> usize {
        /// As good as any number.
        const MANY: usize = 1 << 16;
        self.max_connections
            .map_or(MANY, |most| most.saturating_sub(HOUSEKEEPING).max(1))
    }
}
