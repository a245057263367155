//! What differs between database servers.

use std::sync::Arc;

use ruststream::transport::{DeadLetter, ErrorKind};
use tokio::task::AbortHandle;

use super::{Base, Locks};
use crate::dead_letters::{DeadMessage, QueueCounts};
use crate::error::Failure;
use crate::operation::{
    Administer, Answered, Claim, Decoded, LostRow, Needs, NewRow, Part, PruneBatch, RetryRow, Which,
};
use crate::table::{TableAnswer, TableWork};
use crate::transaction::Begins;

/// Something asked of a server: one statement, or a few that belong together.
pub(crate) trait Request: Sync {
    type Answer: Send;
}

/// A server that can answer such a request.
pub(crate) trait Answers<R: Request>: Connects {
    /// Asks. Whatever the outcome, no transaction is left open.
    fn answer(
        &self,
        connection: &mut Self::Connection,
        request: &R,
    ) -> impl Future<Output = Result<R::Answer, sqlx::Error>> + Send;
}

/// A server that can be connected to.
pub(crate) trait Connects: Send + Sync + Sized + 'static {
    type Connection: Send + 'static;

    /// Makes a connection that is set up for the crate's statements.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, sqlx::Error>> + Send;

    /// Makes and migrates the tables, or checks them where `migrate` is false.
    fn prepare(
        &self,
        connection: &mut Self::Connection,
        migrate: bool,
    ) -> impl Future<Output = Result<(), PrepareError>> + Send;

    /// Says goodbye.
    fn close(connection: Self::Connection) -> impl Future<Output = ()> + Send;

    /// What an error means.
    fn judge(&self, error: &sqlx::Error) -> Judgement;

    /// Starts the task that hears of new messages, where the server tells.
    fn listen(base: &Arc<Base<Self>>) -> Option<AbortHandle> {
        let _ = base;
        None
    }

    /// Whether publishes are to be told to other processes.
    fn tells(&self) -> bool {
        false
    }
}

/// All that the tasks need.
pub(crate) trait Dialect:
    Answers<Claim>
    + Answers<Peek>
    + Answers<SettleRows>
    + for<'a> Answers<Store<'a>>
    + Answers<Wake>
    + Answers<Renewals>
    + Answers<Administer>
    + Answers<Which>
    + Answers<Count>
    + Answers<Ping>
    + Answers<Needs>
    + Answers<PruneBatch>
    + Answers<TableWork>
    + for<'a> Answers<Share<'a>>
    + Begins
    + Locks
{
}

/// Why tables could not be made ready.
pub(crate) enum PrepareError {
    Sqlx(sqlx::Error),
    Failed(Failure),
}

impl From<sqlx::Error> for PrepareError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlx(error)
    }
}

/// What an error means.
pub(crate) struct Judgement {
    pub(crate) kind: ErrorKind,
    /// What happened and what to do about it, after the name of the database.
    pub(crate) text: String,
    /// The connection is of no use any more.
    pub(crate) lost: bool,
    /// The same statement may succeed at once: a deadlock, a serialization failure.
    pub(crate) again: bool,
}

/// Leases what is due, answers it in order.
impl Request for Claim {
    type Answer = Decoded;
}

/// In how many milliseconds the first row of each queue is due that no one holds; `None` where there is none. Zero or less is
/// now.
pub(crate) struct Peek {
    pub(crate) queues: Vec<Arc<str>>,
}

impl Request for Peek {
    type Answer = Vec<Option<i64>>;
}

/// Rows that end the same way, by ascending id. Answers how many of them were held under their tokens.
pub(crate) enum SettleRows {
    Ack(Vec<(i64, i64)>),
    /// With the milliseconds that they stay.
    Keep(Vec<(i64, i64, i64)>),
    Answer(Vec<Answered>),
    /// With the delay in milliseconds.
    Defer(Vec<(i64, i64, i64)>),
    Release(Vec<(i64, i64)>),
    /// With the attempts made.
    Return(Vec<(i64, i64, u32)>),
    /// With the delay in milliseconds.
    Retry(Vec<(i64, i64, i64)>),
    Dead(Vec<(i64, i64, Box<DeadLetter>)>),
}

impl Request for SettleRows {
    type Answer = u64;
}

impl SettleRows {
    /// Sorts parts by how they end.
    pub(super) fn sort(parts: Vec<Part>) -> Vec<Self> {
        let (mut acks, mut releases, mut returns) = (Vec::new(), Vec::new(), Vec::new());
        let (mut retries, mut dead) = (Vec::new(), Vec::new());
        let (mut keeps, mut answers, mut defers) = (Vec::new(), Vec::new(), Vec::new());
        let with_delay = |row: RetryRow| (row.id, row.token, row.after);
        for part in parts {
            match part {
                Part::Ack { token, ids, .. } => acks.extend(ids.into_iter().map(|id| (id, token))),
                Part::Keep { token, ids, keep } => keeps.extend(ids.into_iter().map(|id| (id, token, keep))),
                Part::Answer(answered) => answers.push(answered),
                Part::Defer(rows) => defers.extend(rows.into_iter().map(with_delay)),
                Part::Release { token, ids } => releases.extend(ids.into_iter().map(|id| (id, token))),
                Part::Return { id, token, attempts } => returns.push((id, token, attempts)),
                Part::Retry(rows) => retries.extend(rows.into_iter().map(with_delay)),
                Part::Dead { id, token, letter } => dead.push((id, token, letter)),
            }
        }
        // Every statement locks in this order, so that no two wait for each other.
        acks.sort_unstable();
        keeps.sort_unstable();
        answers.sort_unstable_by_key(|row| (row.id, row.token));
        defers.sort_unstable();
        releases.sort_unstable();
        returns.sort_unstable();
        retries.sort_unstable();
        dead.sort_unstable_by_key(|(id, token, _)| (*id, *token));
        let all = [
            Self::Ack(acks),
            Self::Keep(keeps),
            Self::Answer(answers),
            Self::Defer(defers),
            Self::Release(releases),
            Self::Return(returns),
            Self::Retry(retries),
            Self::Dead(dead),
        ];
        all.into_iter().filter(|rows| rows.len() > 0).collect()
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Ack(rows) | Self::Release(rows) => rows.len(),
            Self::Return(rows) => rows.len(),
            Self::Retry(rows) | Self::Keep(rows) | Self::Defer(rows) => rows.len(),
            Self::Answer(rows) => rows.len(),
            Self::Dead(rows) => rows.len(),
        }
    }

    /// Ids with their tokens.
    pub(super) fn rows(&self) -> Vec<(i64, i64)> {
        match self {
            Self::Ack(rows) | Self::Release(rows) => rows.clone(),
            Self::Return(rows) => rows.iter().map(|(id, token, _)| (*id, *token)).collect(),
            Self::Retry(rows) | Self::Keep(rows) | Self::Defer(rows) => {
                rows.iter().map(|(id, token, _)| (*id, *token)).collect()
            }
            Self::Answer(rows) => rows.iter().map(|row| (row.id, row.token)).collect(),
            Self::Dead(rows) => rows.iter().map(|(id, token, _)| (*id, *token)).collect(),
        }
    }

    /// Whether the rows can be claimed again afterwards.
    pub(super) fn come_again(&self) -> bool {
        matches!(
            self,
            Self::Release(_) | Self::Return(_) | Self::Retry(_) | Self::Defer(_)
        )
    }

    /// Each row by itself.
    pub(super) fn singly(self) -> Vec<Self> {
        match self {
            Self::Ack(rows) => rows.into_iter().map(|row| Self::Ack(vec![row])).collect(),
            Self::Keep(rows) => rows.into_iter().map(|row| Self::Keep(vec![row])).collect(),
            Self::Answer(rows) => rows.into_iter().map(|row| Self::Answer(vec![row])).collect(),
            Self::Defer(rows) => rows.into_iter().map(|row| Self::Defer(vec![row])).collect(),
            Self::Release(rows) => rows.into_iter().map(|row| Self::Release(vec![row])).collect(),
            Self::Return(rows) => rows.into_iter().map(|row| Self::Return(vec![row])).collect(),
            Self::Retry(rows) => rows.into_iter().map(|row| Self::Retry(vec![row])).collect(),
            Self::Dead(rows) => rows.into_iter().map(|row| Self::Dead(vec![row])).collect(),
        }
    }
}

/// Stores rows, in order, in one statement; tells other processes of these queues when that commits.
pub(crate) struct Store<'a> {
    pub(crate) rows: &'a [NewRow],
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "not every server can tell"))]
    pub(crate) wake: &'a [Arc<str>],
}

/// Answers the places of those whose unique key was there.
impl Request for Store<'_> {
    type Answer = Vec<usize>;
}

/// Makes indexes, or finds them; writes a group down. Answers the statements of indexes that are missing.
impl Request for Needs {
    type Answer = Vec<&'static str>;
}

impl Request for TableWork {
    type Answer = TableAnswer;
}

/// Answers how many rows it deleted.
impl Request for PruneBatch {
    type Answer = u64;
}

/// Gives messages of a queue that are due to its groups: each a copy. Answers how many it moved.
pub(crate) struct Share<'a> {
    pub(crate) queue: &'a str,
    pub(crate) limit: i64,
}

impl Request for Share<'_> {
    type Answer = u64;
}

/// Tells other processes that queues have new rows.
pub(crate) struct Wake {
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "not every server can tell"))]
    pub(crate) queues: Vec<Arc<str>>,
}

impl Request for Wake {
    type Answer = ();
}

/// Extends leases; answers those that are lost. Rows that another statement holds just now are left for the next time.
pub(crate) struct Renewals {
    /// Ids with their tokens, ascending.
    pub(crate) rows: Vec<(i64, i64)>,
    /// Milliseconds.
    pub(crate) lease: i64,
}

impl Request for Renewals {
    type Answer = Vec<LostRow>;
}

impl Request for Administer {
    type Answer = Vec<i64>;
}

impl Request for Which {
    type Answer = Vec<DeadMessage>;
}

/// Counts the messages of a queue.
pub(crate) struct Count(pub(crate) Arc<str>);

impl Request for Count {
    type Answer = QueueCounts;
}

/// One trivial round trip.
pub(crate) struct Ping;

impl Request for Ping {
    type Answer = ();
}
