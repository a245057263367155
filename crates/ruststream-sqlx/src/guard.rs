//! What holds claimed rows beside their lease: locks of the database, which end with the connection that has them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use ruststream::transport::TransportError;
use tokio::sync::OwnedSemaphorePermit;

use crate::engine::Engine;
use crate::error::Failure;
use crate::operation::Part;
use crate::terms::Terms;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What rows are claimed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    #[default]
    Lease,
    /// A transaction that has locked them stays open.
    RowLock,
    /// A lock by name.
    Advisory(LockKey),
}

/// What an [advisory lock](crate::Inbox::advisory_lock) is named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LockKey {
    /// The id of the row: a lock for each message, named `orders/17`.
    #[default]
    Id,
    /// The key of the message, `orders/customer-5`: nothing else with that key is handled at the time, wherever. Messages without a
    /// key have a lock by their id. It keeps the order of each key, as [`fifo`](crate::Inbox::fifo) does.
    Key,
}

impl LockKey {
    /// The name of the lock of a message.
    pub(crate) fn name(self, queue: &str, id: i64, key: Option<&[u8]>) -> String {
        match (self, key) {
            (Self::Key, Some(key)) => format!("{queue}/{}", String::from_utf8_lossy(key)),
            _ => format!("{queue}/{id}"),
        }
    }
}

/// What a subscription holds its messages by, beside their leases.
#[derive(Clone)]
pub(crate) enum Guard {
    None,
    Rows(Arc<dyn Guards>),
    Names(LockKey, Arc<dyn AdvisoryGuard>),
}

impl Guard {
    pub(crate) fn open(engine: &Engine, terms: &Terms) -> Result<Self, TransportError> {
        Ok(match terms.form {
            Form::Lease => Self::None,
            Form::RowLock => {
                let guards = engine.guards();
                guards.check_rows()?;
                Self::Rows(guards)
            }
            Form::Advisory(key) => Self::Names(key, engine.guards().advisory()),
        })
    }
}

/// Where a database gives locks.
pub(crate) trait Guards: Send + Sync {
    /// An error where no rows can be locked.
    fn check_rows(&self) -> Result<(), Failure>;

    /// Waits until another transaction may be open.
    fn place(&self) -> Boxed<'_, Result<Place, Failure>>;

    /// Locks rows in a transaction that stays open; answers which.
    fn lock_rows(&self, place: Place, rows: ToLock) -> Boxed<'_, Result<Locked, Failure>>;

    /// Where locks by name are taken.
    fn advisory(&self) -> Arc<dyn AdvisoryGuard>;
}

/// The right to have a transaction open.
#[derive(Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "held")] pub(crate) [OwnedSemaphorePermit; 2]);

/// Rows to be locked.
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "of servers alone")
)]
pub(crate) struct ToLock {
    pub(crate) queue: Arc<str>,
    /// Ids with their tokens.
    pub(crate) rows: Vec<(i64, i64)>,
    /// Milliseconds.
    pub(crate) lease: i64,
}

/// Rows that are locked.
pub(crate) struct Locked {
    pub(crate) guard: Arc<dyn RowGuard>,
    pub(crate) ids: Vec<i64>,
}

/// A transaction that has rows locked.
pub(crate) trait RowGuard: fmt::Debug + Send + Sync {
    /// Whether the rows are locked, as far as is known.
    fn is_alive(&self) -> bool;

    /// Settles some of the rows, for good, and keeps those locked that are left, by ids and tokens; answers how many belonged to
    /// someone else. After an error none is locked any more.
    fn settle(&self, parts: Vec<Part>, left: Vec<(i64, i64)>) -> Boxed<'_, Result<usize, Failure>>;

    /// Finds out whether it is alive.
    fn look(&self) -> Boxed<'_, ()>;
}

/// Takes locks by name.
pub(crate) trait AdvisoryGuard: Send + Sync {
    /// Takes those that no one has; answers which were taken.
    fn try_lock(&self, names: Vec<String>) -> Boxed<'_, Result<Vec<bool>, Failure>>;

    /// Gives locks back.
    fn unlock(&self, names: Vec<String>) -> Boxed<'_, ()>;

    /// Finds out whether all locks are still there.
    fn look(&self) -> Boxed<'_, bool>;
}
