//! SQL tables as durable queues for `RustStream`, through sqlx.
//!
//! [`SqlxBroker::sqlite`] makes a queue out of a file: nothing to install, nothing to start. `SqlxBroker::postgres` (feature
//! `postgres`) and `SqlxBroker::mysql` (feature `mysql`) make one out of a database that is there anyway. Each subscription reads one named queue of one table, which the
//! crate creates and migrates itself.
//!
//! # What is promised
//!
//! - A publish that was confirmed survives the end of the process, `kill -9` included. A power cut can take the last moments
//!   of confirmed work with it, unless [`Synchronous::Full`] is set; the file stays sound in both cases.
//! - A message is handed out to one subscription at a time, under a lease that is renewed while its handler works. A lease that
//!   ran out lets the message be handed out again, and what its late holder then says changes nothing.
//! - Attempts are counted when a message is handed out, in the file, so that one which kills its process is counted too.
//! - Delays, retries and dead letters are rows of the table. Dead letters keep their bytes, headers and history.
//! - Any number of processes of one machine can work on one file. Files on a network share are not supported: `SQLite`'s locks
//!   do not work there. On a server the machines may be many; leases, delays and times go by the server's clock.
//! - On a server, a handler may take a transaction (`Tx`): its writes, what it publishes by it, and the ack commit together, or not
//!   at all. So each message takes effect there exactly once.
//!
//! # The outbox
//!
//! With the feature `outbox`, messages for any broker are written by the transaction that writes the data (`Outbox`), and published after
//! its commit by a background service of the app (`Relay`). `Tracked` does it by layers, and `Once` lets what comes twice take effect
//! once.
//!
//! # How it works
//!
//! On a file, each connection has one writer, which takes everything that waits (claims, receipts, publishes, renewals) and runs
//! it as one transaction. While that runs, the next group gathers. Dead letters and counts are read on a connection of their own.
//!
//! On a server, each kind of work has a connection of its own, made when it is first needed: claims, receipts, publishes,
//! renewals, and the tools of people, five at most for all subscriptions of an app, and one that hears of new messages. So no
//! lease waits behind a claim, and none behind handlers, whose pool is their own. What waits for a connection gathers into one
//! statement, and a claim brings many rows. Rows are claimed by their state, not by a mark of how far one has read: what a slow
//! transaction commits late is handled all the same.
//!
//! # Examples
//!
//! ```
//! use ruststream::message::Outgoing;
//! use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
//! use ruststream_sqlx::{Inbox, SqlxBroker};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("orders.db");
//! let connection = SqlxBroker::sqlite(path).connect().await?;
//! connection.publisher().publish(&[Outgoing::new("orders", b"one")]).await?;
//!
//! let (mut fetch, mut settle) = Inbox::queue("orders").open(&connection).await?;
//! let mut deliveries = Vec::new();
//! fetch.fetch(64, &mut deliveries).await?;
//! assert_eq!(deliveries[0].payload(), b"one");
//!
//! let mut finished = deliveries.drain(..).map(|delivery| (delivery.into_receipt(), Verdict::Ack)).collect();
//! settle.settle(&mut finished).await?;
//! # Ok(())
//! # }
//! ```

mod broker;
mod clock;
mod connection;
mod dead_letters;
mod engine;
mod error;
mod fetch;
mod guard;
mod lease;
#[cfg(feature = "mysql")]
mod mysql;
mod operation;
mod options;
#[cfg(feature = "outbox")]
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
mod publish;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod server;
mod settle;
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
mod terms;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod transaction;
mod walk;

pub use ruststream_macros::Inbox;

#[cfg(feature = "mysql")]
pub use self::mysql::MySql;
#[cfg(feature = "outbox")]
pub use self::outbox::{
    Lag, Once, Outbox, OutboxConnection, OutboxDatabase, OutboxMessage, Parked, ParkedRecord, Receipts, Relay, Tracked,
    TrackedMark, TrackedRecord, TrackedResend, Writing,
};
#[cfg(feature = "postgres")]
pub use self::postgres::Postgres;
#[cfg(feature = "sqlite")]
pub use self::sqlite::{Sqlite, Synchronous};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use self::transaction::{Lends, Stores, Tx, publish_in};
pub use self::{
    broker::SqlxBroker,
    connection::{SqlxConnection, Statistics},
    dead_letters::{DeadLetters, DeadMessage, QueueCounts},
    fetch::{InboxDelivery, InboxFetch, InboxRow},
    guard::LockKey,
    options::InboxOptions,
    publish::{SqlxPublisher, Stored},
    settle::{InboxReceipt, InboxSettle},
    source::Inbox,
    table::{InboxTable, InsertRow, ReadRow, Repository, TableDatabase},
    terms::Isolation,
};

/// What the code of `#[derive(Inbox)]` names.
#[doc(hidden)]
pub mod derived {
    pub use sqlx;

    pub use crate::table::{ColumnSpec, Role, TableSpec, read_row};
}

/// A file of `SQLite`; the feature `sqlite` is off.
#[cfg(not(feature = "sqlite"))]
#[derive(Debug, Clone)]
pub struct Sqlite {}

/// The code of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
