//! What both halves of a subscription know of it.

use std::sync::Arc;

use crate::guard::Form;
use crate::operation::Choice;
use crate::table::OpenTable;

#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) queue: Arc<str>,
    /// The queue whose messages are given to its groups, where `queue` is the place of one.
    pub(crate) shared: Option<Arc<str>>,
    /// Milliseconds, as all times here.
    pub(crate) lease: i64,
    pub(crate) choice: Choice,
    /// For how long a message that is done stays.
    pub(crate) keep: Option<i64>,
    pub(crate) keep_dead: Option<i64>,
    pub(crate) max_payload: usize,
    /// Replies are stored by acks: not where names may lead to tables of the user's own.
    pub(crate) encloses: bool,
    /// The table of the user's own that is read.
    pub(crate) table: Option<Arc<OpenTable>>,
    pub(crate) form: Form,
    /// Each message is claimed and settled by itself.
    pub(crate) singly: bool,
    /// Messages are claimed in the transactions of their handlers.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        allow(dead_code, reason = "of servers alone")
    )]
    pub(crate) transactional: bool,
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        allow(dead_code, reason = "of servers alone")
    )]
    pub(crate) isolation: Option<Isolation>,
}

impl Terms {
    /// Whether there is something to be deleted now and then.
    pub(crate) fn prunes(&self) -> bool {
        self.keep.is_some() || self.keep_dead.is_some()
    }
}

/// What the transaction of a handler sees of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the first.
    RepeatableRead,
    /// As if transactions ran one after another; one that cannot is rolled back, and its message handled again.
    Serializable,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Isolation {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}
