//! The settings of a database, whichever it is.

use crate::Sqlite;

/// The payload limit unless another is set.
const DEFAULT_MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// `SQLite` takes no value of more than 10^9 bytes, the servers of no more than 2^30; headers and key need their part.
const LARGEST_MAX_PAYLOAD: usize = 900 * 1024 * 1024;

/// An SQL database whose table keeps queues. `D` says which, and has the settings that only it knows.
///
/// # Examples
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// use std::time::Duration;
/// use ruststream::transport::Broker;
/// use ruststream_sqlx::{SqlxBroker, Synchronous};
///
/// let broker = SqlxBroker::sqlite("orders.db")
///     .synchronous(Synchronous::Full)
///     .max_payload(1024 * 1024)
///     .busy_timeout(Duration::from_secs(2));
/// assert_eq!(broker.label(), "sqlite orders.db");
/// ```
#[derive(Debug, Clone)]
pub struct SqlxBroker<D = Sqlite> {
    pub(crate) database: D,
    pub(crate) max_payload: usize,
}

impl<D> SqlxBroker<D> {
    pub(crate) fn new(database: D) -> Self {
        Self {
            database,
            max_payload: DEFAULT_MAX_PAYLOAD,
        }
    }

    /// Sets how large a message may be: payload, headers and key together. 64 MiB unless set; 900 MiB at most, since no database
    /// takes much more.
    ///
    /// A larger one is refused with an error that [says so](ruststream::transport::TransportError::is_too_large).
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes.min(LARGEST_MAX_PAYLOAD);
        self
    }
}
