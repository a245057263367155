//! The outbox: messages that are written with the user's own transaction and published after its commit, by any broker.
//!
//! A service that writes its data and publishes a message does two things that can come apart: a crash between them loses the message,
//! or tells of what was never written. Three tools, each of its own use:
//!
//! - [`Outbox`] writes messages as rows, in the transaction that writes the data. A [`Relay`], a background service of the app,
//!   publishes them after the commit, at least once and in the order of each key.
//! - [`Tracked`] is a pair of layers for services that publish as they always did: one records what is sent under the names that are
//!   registered, the other handles each recorded message once and marks it. What no one has marked is sent again.
//! - [`Receipts`] is the other end: a consumer writes down, in its own transaction, which messages it has handled, so that
//!   what comes twice takes effect once.
//!
//! All of them live in tables that [`prepare`](Outbox::prepare) makes, on `SQLite`, `PostgreSQL`, and `MariaDB` or `MySQL`; which one
//! is the type of the pool.

mod database;
mod error;
mod fields;
mod link;
mod message;
mod receipts;
mod records;
mod relay;
mod tools;
mod tracked;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::codec::{Codec, Encode};
use ruststream::publish::{Addressed, Destination};
use ruststream::transport::TransportError;
use sqlx::Pool;

pub use self::database::{OutboxConnection, OutboxDatabase};
pub use self::message::{OutboxMessage, Writing};
pub use self::receipts::{Once, Receipts};
pub use self::relay::Relay;
pub use self::tools::{Lag, Parked, ParkedRecord};
pub use self::tracked::{Tracked, TrackedMark, TrackedRecord, TrackedResend};

use self::error::fault;
use self::relay::Status;

/// Writes messages into the user's own transaction; a [`Relay`] publishes them after its commit.
///
/// What is promised:
///
/// - A message is published if its transaction commits, and only then. It is published at least once: a process that dies between the
///   broker's confirmation and the mark in the table leaves it to be published again, with the same `message-id`, by which
///   a consumer ([`Receipts`]) knows it.
/// - Messages of one key are published in the order in which they were written, through failures and by any number of relays. One that
///   is delayed holds no one up.
/// - A record that the broker will not take is parked after its attempts, with the reason; it stops no other. See [`Parked`].
///
/// Clones share their settings and their wake-up.
///
/// # Examples
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// use ruststream::prelude::*;
/// use ruststream_sqlx::Outbox;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}?mode=rwc", directory.path().join("shop.db").display());
/// let pool = sqlx::SqlitePool::connect(&url).await?;
/// let outbox = Outbox::new(pool.clone());
/// outbox.prepare().await?;
///
/// let mut tx = pool.begin().await?;
/// // The order's own row is written by the same transaction.
/// outbox.publish(&mut tx, "orders", &7_u64).key("customer-7").await?;
/// tx.commit().await?;
///
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |_| {})
///     .background(outbox.relay())
///     .build();
/// # assert_eq!(outbox.lag().await?.waiting, 1);
/// # app.check()?;
/// # Ok(())
/// # }
/// ```
pub struct Outbox<DB: OutboxDatabase> {
    pool: Pool<DB>,
    codec: Codec,
    notify: bool,
    migrate: bool,
    status: Arc<Status>,
}

impl<DB: OutboxDatabase> Outbox<DB> {
    /// An outbox in the database of this pool. It writes by the caller's transactions; the relay makes connections of its own, by the
    /// pool's options, so that it never waits for handlers.
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            pool,
            codec: Codec::default(),
            notify: true,
            migrate: true,
            status: Arc::default(),
        }
    }

    /// Sets the codec that messages are written by. JSON unless set.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Sets whether relays of other processes are told of a message when its transaction commits (Postgres only, by `NOTIFY`). They
    /// are unless this is off; then they find it by polling. To be switched off behind a pooler in transaction mode.
    #[must_use]
    pub fn notifications(mut self, on: bool) -> Self {
        self.notify = on;
        self
    }

    /// Sets whether the crate makes and migrates the tables. It does unless this is off: then they have to be there, as
    /// [`ddl`](Self::ddl) makes them.
    #[must_use]
    pub fn migrate(mut self, on: bool) -> Self {
        self.migrate = on;
        self
    }

    /// The statements that make the tables, for people who run migrations of their own.
    pub fn ddl() -> String {
        DB::ddl()
    }

    /// Makes and migrates the tables, or checks that they are there. Any number of processes may do so at the same time.
    ///
    /// # Errors
    ///
    /// Where the database is away or refuses, or its tables are of a later version.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, the next call goes on.
    pub async fn prepare(&self) -> Result<(), TransportError> {
        prepare(&self.pool, self.migrate).await
    }

    /// Writes `message` for `destination` into the caller's transaction once awaited; headers, key and delay are set in between. It gets
    /// a `message-id`, unless one is set.
    ///
    /// A message with a delay is kept here until its time, so that any broker will do; those behind it pass it.
    ///
    /// # Errors
    ///
    /// Where the message has no form in the codec, the destination cannot be filled, or the database refuses the row; on Postgres the
    /// transaction is of no use then.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, it may be written or not; the transaction decides.
    pub fn publish<'c, T: Encode + ?Sized>(
        &self,
        connection: &'c mut DB::Connection,
        destination: impl Destination,
        message: &T,
    ) -> Writing<'c, DB> {
        Writing::new(connection, self.message(destination, message), self.notify)
    }

    /// Writes `message` for where its type says, as [`publish`](Self::publish) does for a name.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    ///
    /// # Cancel safety
    ///
    /// As [`publish`](Self::publish).
    pub fn send<'c, T: Encode + Addressed + ?Sized>(
        &self,
        connection: &'c mut DB::Connection,
        message: &T,
    ) -> Writing<'c, DB> {
        let message = OutboxMessage::new(message.destination(), message, &self.codec);
        Writing::new(connection, message, self.notify)
    }

    /// A message to be written together with others, by [`publish_all`](Self::publish_all).
    pub fn message<T: Encode + ?Sized>(&self, destination: impl Destination, message: &T) -> OutboxMessage {
        OutboxMessage::new(destination.into_name(), message, &self.codec)
    }

    /// Writes many messages into the caller's transaction, in order, by as few statements as there can be.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish); where one message cannot be written, none is.
    ///
    /// # Cancel safety
    ///
    /// As [`publish`](Self::publish).
    pub async fn publish_all(
        &self,
        connection: &mut DB::Connection,
        messages: impl IntoIterator<Item = OutboxMessage>,
    ) -> Result<(), TransportError> {
        let rows = messages
            .into_iter()
            .map(OutboxMessage::into_row)
            .collect::<Result<Vec<_>, _>>()?;
        DB::insert(connection, &rows, self.notify).await.map_err(fault)
    }

    /// Commits a transaction and wakes the relay of this process, so that it need not wait for its next poll.
    ///
    /// # Errors
    ///
    /// Where the commit fails.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, the transaction may have committed or not.
    pub async fn commit(&self, transaction: sqlx::Transaction<'_, DB>) -> Result<(), sqlx::Error> {
        transaction.commit().await?;
        self.wake();
        Ok(())
    }

    /// Wakes the relay of this process: there is something to publish.
    pub fn wake(&self) {
        self.status.wake();
    }

    /// The service that publishes what was written, to be put on an app by [`background`](ruststream::app::AppBuilder::background).
    pub fn relay(&self) -> Relay<DB> {
        Relay::new(self.clone())
    }

    /// What waits to be published, and for how long. It counts rows, so it is for people and dashboards.
    ///
    /// # Errors
    ///
    /// Where the database cannot be read.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn lag(&self) -> Result<Lag, TransportError> {
        tools::lag(&self.pool).await
    }

    /// The records that were given up, to list, replay and purge.
    pub fn parked(&self) -> Parked<DB> {
        Parked::new(self.pool.clone(), self.status.clone())
    }

    /// The layers that track what is published under `names`, and see it handled; see [`Tracked`].
    pub fn tracked(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Tracked<DB> {
        Tracked::new(self.clone(), names.into_iter().map(Into::into).collect())
    }

    /// Which messages this database's consumers have handled; see [`Receipts`].
    pub fn receipts(&self) -> Receipts<DB> {
        Receipts::new(self.pool.clone())
    }
}

async fn prepare<DB: OutboxDatabase>(pool: &Pool<DB>, migrate: bool) -> Result<(), TransportError> {
    const LIMIT: Duration = Duration::from_secs(30);
    let mut link = link::Link::new(pool.clone());
    let mut attempt = 0;
    loop {
        let mut connection = link.take().await?;
        let prepared = tokio::time::timeout(LIMIT, DB::prepare(&mut connection, migrate)).await;
        match link.put(connection, prepared) {
            // Another process is at it.
            Err(error) if error.kind() == ruststream::transport::ErrorKind::Busy && attempt < 20 => attempt += 1,
            ended => {
                link.close().await;
                return ended;
            }
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..200))).await;
    }
}

impl<DB: OutboxDatabase> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            codec: self.codec.clone(),
            notify: self.notify,
            migrate: self.migrate,
            status: self.status.clone(),
        }
    }
}

impl<DB: OutboxDatabase> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("database", &DB::NAME)
            .field("notifications", &self.notify)
            .finish_non_exhaustive()
    }
}
