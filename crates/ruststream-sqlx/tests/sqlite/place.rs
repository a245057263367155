//! A file in a directory of its own.

use std::path::PathBuf;

use ruststream::transport::Broker;
use ruststream_sqlx::{Sqlite, SqlxBroker, SqlxConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};
use tempfile::TempDir;

pub(crate) type PlaceBroker = SqlxBroker;

/// The database.
pub(crate) type Database = Sqlite;

/// A file in a directory that ends with the test.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// Tables of the user's own.
    pub(crate) const TABLES: [&str; 3] = [
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT, customer TEXT, rank_of_it INTEGER NOT NULL DEFAULT 0, \
         attempts INTEGER NOT NULL DEFAULT 0, due INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)), \
         held_until INTEGER, holder INTEGER, dead INTEGER, why TEXT)",
        "CREATE INDEX jobs_due ON jobs (kind, due)",
        "CREATE TABLE notes (name TEXT PRIMARY KEY, attempts INTEGER NOT NULL, \
         due INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)), held_until INTEGER NOT NULL DEFAULT 0, \
         holder INTEGER NOT NULL DEFAULT 0, done INTEGER)",
    ];
    /// Gives a column another type.
    pub(crate) const WRONG_COLUMN: &str =
        "ALTER TABLE jobs DROP COLUMN held_until; ALTER TABLE jobs ADD COLUMN held_until TEXT";
    /// Lets all leases end.
    pub(crate) const END_LEASES: &str = "UPDATE ruststream_messages SET due_at = published_at";

    /// How soon a message of another process is handed out: the polls find it.
    pub(crate) const WOKEN_WITHIN: std::time::Duration = std::time::Duration::from_millis(250);
    /// How often a connection whose subscriptions wait looks for rows of others.
    pub(crate) const POLLS_A_SECOND: std::ops::RangeInclusive<u64> = 5..=15;
    /// Whether such a look is a statement.
    pub(crate) const POLLS_ASK: bool = false;
    /// How many statements or transactions it takes to publish and claim one message.
    pub(crate) const STATEMENTS_A_MESSAGE: u64 = 1;

    #[allow(clippy::unused_async, reason = "the places of servers are made on a server")]
    pub(crate) async fn new() -> Self {
        Self::here()
    }

    pub(crate) fn here() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("queue.db")
    }

    pub(crate) fn broker(&self) -> SqlxBroker {
        SqlxBroker::sqlite(self.path())
    }

    /// One whose processes do not tell each other of new messages: files never do.
    pub(crate) fn broker_that_hears_nothing(&self) -> SqlxBroker {
        self.broker()
    }

    pub(crate) async fn connect(&self) -> SqlxConnection {
        self.broker().connect().await.unwrap()
    }

    /// A plain connection to the file, as any other program has it.
    pub(crate) async fn plain(&self) -> SqliteConnection {
        SqliteConnectOptions::new()
            .filename(self.path())
            .create_if_missing(true)
            .connect()
            .await
            .unwrap()
    }

    pub(crate) async fn sql(&self, sql: &str) {
        self.plain().await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let row = self
            .plain()
            .await
            .fetch_one(AssertSqlSafe(sql.to_owned()))
            .await
            .unwrap();
        row.get(0)
    }

    /// What another process needs to know to find it.
    pub(crate) fn describe(&self) -> String {
        self.path().display().to_string()
    }

    /// The broker of a place that another process described.
    pub(crate) fn described(description: &str) -> SqlxBroker {
        SqlxBroker::sqlite(description)
    }

    /// Bytes as they are written in a statement.
    pub(crate) fn bytes(hex: &str) -> String {
        format!("x'{hex}'")
    }

    /// Sets the id of the next row.
    pub(crate) async fn next_id(&self, id: i64) {
        let before = id - 1;
        self.sql(&format!(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('ruststream_messages', {before})"
        ))
        .await;
    }

    /// A file has no links.
    #[allow(clippy::unused_async, reason = "those of servers are cut by a statement")]
    pub(crate) async fn cut_links(&self) -> bool {
        false
    }

    /// The payloads of what is to be handed out or is in hand, with when their leases end.
    pub(crate) async fn lease_ends(&self) -> Vec<(Vec<u8>, std::time::Duration)> {
        let mut connection = self.plain().await;
        let rows = connection.fetch_all("SELECT payload, due_at FROM ruststream_messages WHERE state = 0");
        let end = |millis: i64| std::time::Duration::from_millis(millis.unsigned_abs());
        let rows = rows.await.unwrap();
        rows.iter().map(|row| (row.get_unchecked(0), end(row.get(1)))).collect()
    }
}
