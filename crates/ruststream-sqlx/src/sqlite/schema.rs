//! Opens a file, and makes and migrates the table in it.

use std::path::Path;
use std::time::Duration;

use ruststream::transport::ErrorKind;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};
use tokio::time::Instant;

use super::Settings;
use super::error::{failure, is_busy};
use crate::error::Failure;

/// The table, whose version the meta table keeps under this name.
pub(crate) const TABLE: &str = "ruststream_messages";

/// How long the thread of the connection itself waits for a lock, before the writer takes over with pauses of its own.
const THREAD_BUSY_TIMEOUT: Duration = Duration::from_millis(10);

const META: &str =
    "CREATE TABLE IF NOT EXISTS ruststream_meta (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT";

/// The statement at position `n` leads from version `n` to version `n + 1`.
///
/// A row is updated in place, without moving others of its page, because a claim changes no column's size: times take six
/// bytes, tokens eight, and the columns that a claim changes stand before the payload.
///
/// `due_at` is when the row may be claimed next: its schedule, or the end of its lease. So one index finds what is due, leaves
/// out what is leased, and has nothing to step over, however many rows are leased, scheduled or dead.
const MIGRATIONS: [&str; 2] = ["
CREATE TABLE ruststream_messages (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    queue         TEXT    NOT NULL,
    state         INTEGER NOT NULL DEFAULT 0,
    due_at        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    token         INTEGER NOT NULL DEFAULT 9223372036854775807,
    attempt       INTEGER NOT NULL DEFAULT 0,
    published_at  INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    dead_reason   TEXT,
    dead_error    TEXT,
    dead_attempts INTEGER,
    dead_source   TEXT,
    dead_at       INTEGER,
    key           BLOB,
    headers       BLOB,
    payload       ANY     NOT NULL
) STRICT;
CREATE INDEX ruststream_messages_due ON ruststream_messages (queue, due_at) WHERE state = 0;
CREATE INDEX ruststream_messages_dead ON ruststream_messages (queue) WHERE state = 1;
", "
ALTER TABLE ruststream_messages ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ruststream_messages ADD COLUMN unique_key TEXT;
ALTER TABLE ruststream_messages ADD COLUMN processed_at INTEGER;
CREATE UNIQUE INDEX ruststream_messages_unique ON ruststream_messages (queue, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX ruststream_messages_done ON ruststream_messages (queue, due_at) WHERE state = 2;
CREATE TABLE ruststream_groups (queue TEXT NOT NULL, name TEXT NOT NULL, place TEXT NOT NULL, PRIMARY KEY (queue, name)) STRICT;
"];

/// What claims in the order of keys need.
pub(super) const FIFO_INDEX: &str = "CREATE INDEX IF NOT EXISTS ruststream_messages_key \
     ON ruststream_messages (queue, key, id) WHERE state = 0 AND key IS NOT NULL;";

/// What claims by priority need.
pub(super) const PRIORITY_INDEX: &str = "CREATE INDEX IF NOT EXISTS ruststream_messages_priority \
     ON ruststream_messages (queue, priority DESC, due_at, id) WHERE state = 0 AND priority > 0;";

/// The version that the migrations lead to.
const KNOWN: i64 = MIGRATIONS.len().cast_signed() as i64;

/// Opens the file for the writer: write-ahead log, newest table.
pub(crate) async fn open_writer(settings: &Settings) -> Result<SqliteConnection, Failure> {
    let deadline = Instant::now() + settings.busy_timeout;
    let opening = async {
        loop {
            let error = match attempt(settings).await {
                Ok(connection) => return Ok(connection),
                Err(Trouble::Failed(failure)) => return Err(failure),
                Err(Trouble::Sqlx(error)) => error,
            };
            if !is_busy(&error) || Instant::now() >= deadline {
                return Err(failure(error, &settings.path));
            }
            tokio::time::sleep(Duration::from_micros(fastrand::u64(1_000..10_000))).await;
        }
    };
    // Half as long again: the last attempt may still be waiting inside the thread of its connection.
    let limit = settings.busy_timeout + settings.busy_timeout / 2 + Duration::from_secs(1);
    tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| {
        Err(Failure::lost(
            ErrorKind::Timeout,
            format!("{} did not open within {limit:?}", settings.path.display()),
        ))
    })
}

/// Opens the file for reading what the writer made.
pub(crate) async fn open_reader(settings: &Settings) -> Result<SqliteConnection, Failure> {
    options(settings)
        .busy_timeout(settings.busy_timeout)
        .create_if_missing(false)
        .pragma("query_only", "ON")
        .connect()
        .await
        .map_err(|error| failure(error, &settings.path))
}

fn options(settings: &Settings) -> SqliteConnectOptions {
    let mut options = SqliteConnectOptions::new()
        .filename(&settings.path)
        .busy_timeout(THREAD_BUSY_TIMEOUT)
        .statement_cache_capacity(256)
        // A claim's rows all fit, so that the thread of the connection never waits for the task that reads them.
        .row_buffer_size(1024)
        .pragma("synchronous", settings.synchronous.word())
        .pragma("temp_store", "MEMORY")
        // Bounds what a burst leaves behind on the disk.
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging();
    for (name, value) in &settings.pragmas {
        options = options.pragma(name.clone(), value.clone());
    }
    options
}

enum Trouble {
    Sqlx(sqlx::Error),
    Failed(Failure),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlx(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

async fn attempt(settings: &Settings) -> Result<SqliteConnection, Trouble> {
    let mut connection = options(settings).create_if_missing(true).connect().await?;
    match prepare(&mut connection, &settings.path).await {
        Ok(()) => Ok(connection),
        Err(trouble) => {
            let _ = connection.close().await;
            Err(trouble)
        }
    }
}

async fn prepare(connection: &mut SqliteConnection, path: &Path) -> Result<(), Trouble> {
    // Asked first: setting the mode takes a lock that no one else may hold, and it is set once in the life of a file.
    let mode: String = one(connection, "PRAGMA journal_mode").await?.try_get(0)?;
    if mode != "wal" {
        let mode: String = one(connection, "PRAGMA journal_mode = WAL").await?.try_get(0)?;
        if mode != "wal" {
            return Err(Trouble::Failed(Failure::lost(
                ErrorKind::Invalid,
                format!(
                    "{} cannot have a write-ahead log (its journal mode stays {mode:?}): put it on a local disk",
                    path.display()
                ),
            )));
        }
    }
    if checked_version(connection, path).await? == KNOWN {
        return Ok(());
    }
    connection.execute("BEGIN IMMEDIATE").await?;
    let migrated = migrate(connection, path).await;
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.execute(end).await;
    migrated?;
    ended?;
    Ok(())
}

/// Runs inside a transaction: of ten processes that start at once, the first does the work and the others find it done.
async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<(), Trouble> {
    let version = checked_version(connection, path).await?;
    for (from, statements) in (0..KNOWN).zip(MIGRATIONS).skip(version as usize) {
        if from == 0 {
            connection.execute(META).await?;
        }
        connection.execute(AssertSqlSafe(statements)).await?;
        let record = sqlx::query("INSERT INTO ruststream_meta VALUES (?1, ?2) ON CONFLICT DO UPDATE SET version = ?2")
            .bind(TABLE)
            .bind(from + 1);
        connection.execute(record).await?;
    }
    Ok(())
}

/// The version of the table; zero where there is none.
async fn checked_version(connection: &mut SqliteConnection, path: &Path) -> Result<i64, Trouble> {
    let file = path.display();
    let tables = "SELECT (SELECT count(*) FROM sqlite_master WHERE name = 'ruststream_meta'), \
                  (SELECT count(*) FROM sqlite_master WHERE name = 'ruststream_messages')";
    let row = one(connection, tables).await?;
    let (meta, messages): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let version = if meta == 0 {
        0
    } else {
        let query = sqlx::query("SELECT version FROM ruststream_meta WHERE name = ?").bind(TABLE);
        match connection.fetch_optional(query).await? {
            Some(row) => row.try_get(0)?,
            None => 0,
        }
    };
    if version > KNOWN {
        return Err(Trouble::Failed(Failure::lost(
            ErrorKind::Incompatible,
            format!(
                "{file} has version {version} of the table {TABLE}, and this version of ruststream-sqlx knows versions up to \
                 {KNOWN}: upgrade ruststream-sqlx, or name another file"
            ),
        )));
    }
    if (version == 0) != (messages == 0) || version < 0 {
        return Err(Trouble::Failed(Failure::lost(
            ErrorKind::Incompatible,
            format!(
                "{file} has {} a table {TABLE} while the table ruststream_meta says version {version}: name another file, or \
                 restore the two tables together",
                if messages == 0 { "no" } else { "already" }
            ),
        )));
    }
    Ok(version)
}

async fn one(connection: &mut SqliteConnection, sql: &'static str) -> Result<SqliteRow, sqlx::Error> {
    connection.fetch_one(sql).await
}
