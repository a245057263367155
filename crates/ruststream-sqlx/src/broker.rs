//! The settings of a database, whichever it is.

use crate::Sqlite;
use crate::source::Inbox;
use crate::table::{ReadRow, TableDatabase, Wanted, decode};

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
    /// The tables of the user's own that names lead to.
    pub(crate) tables: Vec<(String, Wanted)>,
}

impl<D> SqlxBroker<D> {
    pub(crate) fn new(database: D) -> Self {
        Self {
            database,
            max_payload: DEFAULT_MAX_PAYLOAD,
            tables: Vec::new(),
        }
    }

    /// Lets a name lead to a table of the user's own: subscriptions by that name read it, and what is published to that name is
    /// inserted into it, into the columns for payload, headers, key, priority and time. Where the table has a column for groups, the
    /// name is that of the group.
    ///
    /// Missing tables and columns end the start.
    pub fn table<T>(mut self, name: impl Into<String>) -> Self
    where
        D: TableDatabase,
        T: ReadRow<D::Sqlx>,
    {
        let wanted = Wanted {
            spec: T::TABLE,
            decode: decode::<T, D::Sqlx>,
        };
        self.tables.push((name.into(), wanted));
        self
    }

    pub(crate) fn inbox(&self, name: &str) -> Inbox {
        let inbox = Inbox::queue(name);
        match self.tables.iter().rev().find(|(known, _)| known == name) {
            Some((_, wanted)) => inbox.of(wanted.clone()),
            None => inbox,
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
