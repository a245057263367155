//! Queues in tables of a database server: the scenarios and loops that all servers share. What differs is in the folder of each.

mod forms;
mod hand;
mod lease;
mod own;
mod publish;
mod reply;

use ruststream::transport::Broker;
use ruststream_sqlx::{Inbox, SqlxConnection};

use crate::suite::{Failed, Scenario, Transport};

/// The queue that is read.
pub(super) const QUEUE: &str = "orders";

/// Where replies go.
pub(super) const REPLIES: &str = "receipts";

/// What a tuned loop claims and settles at a time, and the size of a batch.
const CHUNK: usize = 64;

/// The command whose round trip is measured.
pub(super) const TRIP: &str = "select 1";

/// A server with tables.
pub trait Database: Transport + Sized {
    /// The crate's broker for it.
    type Broker: Broker<Connection = SqlxConnection, Source = Inbox>;
    /// A place for the tables of one call of a loop.
    type Place: Place;

    /// Makes a place.
    fn place(&self) -> impl Future<Output = Result<Self::Place, Failed>> + Send;

    /// The broker of a place.
    fn broker(place: &Self::Place) -> Self::Broker;
}

/// A place for the tables of one call of a loop, and the statements that one writes by hand.
pub trait Place: Send + Sync + 'static {
    /// A connection as one would open it by hand.
    type Connection: Send;

    /// Connects.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Failed>> + Send;

    /// Makes the table that one would write by hand, and fills it with so many messages.
    fn fill(&self, messages: u64, body: &[u8]) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Leases rows under a token; answers ids and payloads.
    fn claim(
        connection: &mut Self::Connection,
        rows: usize,
        token: i64,
    ) -> impl Future<Output = Result<Vec<(i64, Vec<u8>)>, Failed>> + Send;

    /// Deletes rows held under a token.
    fn delete(
        connection: &mut Self::Connection,
        ids: &[i64],
        token: i64,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Inserts messages by one statement.
    fn insert(
        connection: &mut Self::Connection,
        queue: &'static str,
        messages: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Begins a transaction and locks rows; answers ids and payloads.
    fn begin_locked(
        connection: &mut Self::Connection,
        rows: usize,
    ) -> impl Future<Output = Result<Vec<(i64, Vec<u8>)>, Failed>> + Send;

    /// Deletes these rows, if any, and commits.
    fn end_locked(connection: &mut Self::Connection, ids: &[i64]) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Takes a lock by name.
    fn lock_name(connection: &mut Self::Connection, name: &str) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Gives it back.
    fn unlock_name(connection: &mut Self::Connection, name: &str) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Adds to the crate's table, for so many messages that are scheduled for tomorrow, a fifth as many that are done and a twentieth
    /// that are dead.
    fn deepen(&self, scheduled: u64, body: &[u8]) -> impl Future<Output = Result<(), Failed>> + Send;

    /// How many rows a table has for a queue.
    fn stored(&self, table: &'static str, queue: &'static str) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// Drops it all.
    fn remove(&self) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// The table that one writes by hand.
const BY_HAND: &str = "jobs";

/// The crate's.
const OWN: &str = "ruststream_messages";

/// Every scenario of a server.
pub(super) fn scenarios<D: Database>() -> Vec<Scenario<D>> {
    let mut scenarios = lease::scenarios();
    scenarios.extend(publish::scenarios());
    scenarios.push(reply::scenario());
    scenarios.extend(forms::scenarios());
    scenarios
}
