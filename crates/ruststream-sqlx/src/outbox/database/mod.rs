//! The seam behind which databases differ: statements, and how lists travel.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod body;
#[cfg(feature = "postgres")]
mod listen;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statements;

use std::future::Future;
use std::sync::Arc;

use sqlx::{Connection, Pool};

use super::records::{
    Claim, Finished, GivenUp, NewRecord, NewTracked, Old, Record, TrackedClaim, TrackedDue, TrackedEnd,
    TrackedLeftover, TrackedState, Waiting, Which,
};
use super::relay::Status;

/// A task that listens; dropping it ends it.
#[derive(Debug)]
pub struct Listening(tokio::task::JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Done<T> = Result<T, sqlx::Error>;

/// A database that keeps an outbox: `sqlx::Postgres`, `sqlx::MySql` and `sqlx::Sqlite`, by the features of this crate. No other can.
pub trait OutboxDatabase: sealed::Operations {}

/// A connection to one: sqlx's connection, that of a transaction or a pool dereferences to it.
pub trait OutboxConnection: Send + sealed::Writes {}

pub(crate) mod sealed {
    use super::{
        Arc, Claim, Connection, Done, Finished, Future, GivenUp, Listening, NewRecord, NewTracked, Old, Pool, Record,
        Status, TrackedClaim, TrackedDue, TrackedEnd, TrackedLeftover, TrackedState, Waiting, Which,
    };

    /// What a connection does, where its database is known by it.
    #[doc(hidden)]
    pub trait Writes {
        fn receipt(&mut self, consumer: &str, message: &str) -> impl Future<Output = Done<bool>> + Send;
    }

    /// What is asked of a database. Times are milliseconds of its own clock.
    #[doc(hidden)]
    pub trait Operations: sqlx::Database<Connection: Connection<Database = Self, Options: Clone + Sync>> {
        /// Whether any number of tracked messages is one statement.
        const ONE_INSERT: bool;

        /// Whether all writing goes through one connection at a time anyway.
        const ONE_WRITER: bool;

        fn options(pool: &Pool<Self>) -> <Self::Connection as Connection>::Options;

        /// Sets up a connection of the outbox's own.
        fn settle_in(connection: &mut Self::Connection) -> impl Future<Output = Done<()>> + Send;

        fn ddl() -> String;

        fn prepare(connection: &mut Self::Connection, migrate: bool) -> impl Future<Output = Done<()>> + Send;

        fn insert(
            connection: &mut Self::Connection,
            rows: &[NewRecord],
            notify: bool,
        ) -> impl Future<Output = Done<()>> + Send;

        /// Marks what has ended, and claims what is next: in one transaction, and never two at a time in a database. Records of a key of
        /// which one is held are not claimed; what is claimed is in the order of writing.
        fn turn(
            connection: &mut Self::Connection,
            finished: Option<&Finished>,
            claim: Option<Claim>,
        ) -> impl Future<Output = Done<Vec<Record>>> + Send;

        fn waiting(connection: &mut Self::Connection) -> impl Future<Output = Done<Waiting>> + Send;

        fn given_up(
            connection: &mut Self::Connection,
            after: i64,
            limit: i64,
        ) -> impl Future<Output = Done<Vec<GivenUp>>> + Send;

        fn replay(
            connection: &mut Self::Connection,
            which: &Which,
            keep_attempts: bool,
        ) -> impl Future<Output = Done<u64>> + Send;

        fn purge(connection: &mut Self::Connection, which: &Which) -> impl Future<Output = Done<u64>> + Send;

        /// Deletes rows that ended so many milliseconds ago, a bounded number.
        fn prune(
            connection: &mut Self::Connection,
            old: Old,
            age: i64,
            limit: i64,
        ) -> impl Future<Output = Done<u64>> + Send;

        /// True where it was not there.
        fn receipt(
            connection: &mut Self::Connection,
            consumer: &str,
            message: &str,
        ) -> impl Future<Output = Done<bool>> + Send;

        fn track(connection: &mut Self::Connection, rows: &[NewTracked]) -> impl Future<Output = Done<()>> + Send;

        fn tracked_claim(
            connection: &mut Self::Connection,
            claim: &TrackedClaim,
        ) -> impl Future<Output = Done<Vec<(String, TrackedState)>>> + Send;

        fn tracked_end(
            connection: &mut Self::Connection,
            held: &[(String, i64)],
            end: TrackedEnd,
        ) -> impl Future<Output = Done<u64>> + Send;

        fn tracked_due(
            connection: &mut Self::Connection,
            due: TrackedDue,
        ) -> impl Future<Output = Done<Vec<TrackedLeftover>>> + Send;

        /// Takes back the attempt of messages that no broker was there for.
        fn tracked_undo(
            connection: &mut Self::Connection,
            ids: &[String],
            resend: i64,
        ) -> impl Future<Output = Done<u64>> + Send;

        /// Has those that were parked sent again.
        fn tracked_replay(connection: &mut Self::Connection) -> impl Future<Output = Done<u64>> + Send;

        /// The counts of open and of parked ones.
        fn tracked_counts(connection: &mut Self::Connection) -> impl Future<Output = Done<(i64, i64)>> + Send;

        /// Hears of records that other processes have written, until it is dropped; `None` where the database does not tell.
        fn listen(pool: Pool<Self>, notify: bool, status: Arc<Status>) -> Option<Listening>;

        /// Begins a transaction that writes.
        fn begin(connection: &mut Self::Connection) -> impl Future<Output = Done<()>> + Send;

        fn commit(connection: &mut Self::Connection) -> impl Future<Output = Done<()>> + Send;
    }
}

/// What ends of tracked messages set, by [`place_of`].
const TRACKED_ENDS: [&str; 4] = [
    "state = 2, ended_at = {now}, token = 0, held_until = 0",
    "state = 3, ended_at = {now}, token = 0, held_until = 0",
    "token = 0, held_until = 0",
    "held_until = {now} + ?",
];

const fn place_of(end: TrackedEnd) -> usize {
    match end {
        TrackedEnd::Handled => 0,
        TrackedEnd::GivenUp => 1,
        TrackedEnd::Released => 2,
        TrackedEnd::Renewed(_) => 3,
    }
}

/// Begins the statement that takes back an attempt at sending again.
const TRACKED_UNDO: &str = "UPDATE ruststream_tracked SET attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END, resend_at = {now} + ?";

/// What is set of a message that is sent again: when it is sent the next time, or that it is parked. All numbers are this crate's.
///
/// In the order of `MySQL`, which sees in each assignment what the ones before it have set: attempts come last.
fn resend(dialect: statements::Dialect, due: TrackedDue) -> String {
    let TrackedDue {
        resend,
        longest,
        attempts,
        ..
    } = due;
    dialect.text(&format!(
        "resend_at = {{now}} + CASE WHEN {resend} * (attempts + 1) > {longest} THEN {longest} ELSE {resend} * (attempts + 1) END, \
         state = CASE WHEN attempts >= {attempts} THEN 1 ELSE 0 END, \
         ended_at = CASE WHEN attempts >= {attempts} THEN {{now}} END, attempts = attempts + 1"
    ))
}

/// Tells of a message that was sent as often as it may be.
fn tell_parked(leftover: &TrackedLeftover) {
    tracing::error!(
        id = leftover.id,
        destination = leftover.destination,
        attempts = leftover.attempts,
        "a tracked message was not marked however often it was sent: it is parked until `Tracked::replay_parked`"
    );
}

/// Notes what is known of a message that was not granted: 0 in progress, 1 handled, 2 another consumer's.
fn note(states: &mut Vec<(String, TrackedState)>, id: String, known: i64) {
    if states.iter().any(|(granted, _)| *granted == id) {
        return;
    }
    states.push((
        id,
        match known {
            0 => TrackedState::InProgress,
            1 => TrackedState::Handled,
            _ => TrackedState::Unknown,
        },
    ));
}

/// Refuses tables of a later version, and earlier ones where they are not to be changed.
fn known(version: i64, known: i64, migrate: bool) -> Done<()> {
    let refuse = |text: String| Err(sqlx::Error::Configuration(text.into()));
    if version > known {
        return refuse(format!(
            "the tables of the outbox have version {version}, and this version of ruststream-sqlx knows versions up to {known}: \
             upgrade ruststream-sqlx, or name another database"
        ));
    }
    if !migrate {
        return refuse(format!(
            "the tables of the outbox have version {version} and this version of ruststream-sqlx needs {known}: run the \
             statements of `Outbox::ddl()`, or let the crate do it with `.migrate(true)`"
        ));
    }
    Ok(())
}
