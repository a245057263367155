//! The table, and how it is made and migrated.

use ruststream::transport::ErrorKind;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::error::Failure;
use crate::operation::Choice;
use crate::server::PrepareError;

/// The table, whose version the meta table keeps under this name.
const TABLE: &str = "ruststream_messages";

/// Says of a table that this crate made it, also where its process died before it could write down the version.
const COMMENT: &str = "made by ruststream-sqlx";

const META: &str = "CREATE TABLE IF NOT EXISTS ruststream_meta (name VARCHAR(100) CHARACTER SET ascii PRIMARY KEY, version BIGINT \
                    NOT NULL) ENGINE=InnoDB";

/// The statement at position `n` leads from version `n` to version `n + 1`. The server commits each of them by itself, so each is
/// one that finds its work done when it is run again.
///
/// A claim changes columns of fixed size that no index has. Names of queues are bytes: no collation takes two for one.
const MIGRATIONS: [&str; 3] = ["CREATE TABLE IF NOT EXISTS ruststream_messages (
    id            BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue         VARBINARY(200) NOT NULL,
    state         TINYINT        NOT NULL DEFAULT 0,
    attempt       INT            NOT NULL DEFAULT 0,
    token         BIGINT         NOT NULL DEFAULT 0,
    lease_until   DATETIME(6)    NOT NULL DEFAULT '1970-01-01',
    due_at        DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    published_at  DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    message_key   MEDIUMBLOB,
    headers       LONGBLOB,
    payload       LONGBLOB       NOT NULL,
    dead_reason   VARCHAR(100),
    dead_error    MEDIUMTEXT,
    dead_attempts BIGINT,
    dead_source   TEXT,
    dead_at       DATETIME(6),
    KEY ruststream_messages_due (queue, state, due_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COMMENT='made by ruststream-sqlx'",
"ALTER TABLE ruststream_messages
    ADD COLUMN priority SMALLINT NOT NULL DEFAULT 0, ADD COLUMN unique_key VARBINARY(200), ADD COLUMN processed_at DATETIME(6),
    ADD UNIQUE KEY ruststream_messages_unique (queue, unique_key)",
"CREATE TABLE IF NOT EXISTS ruststream_groups (
    queue VARBINARY(200) NOT NULL, name VARBINARY(200) NOT NULL, place VARBINARY(200) NOT NULL, PRIMARY KEY (queue, name)
) ENGINE=InnoDB"];

const FIFO_INDEX: &str = "CREATE INDEX ruststream_messages_key ON ruststream_messages (queue, state, message_key(100))";

const PRIORITY_INDEX: &str =
    "CREATE INDEX ruststream_messages_priority ON ruststream_messages (queue, state, priority, due_at)";

/// The indexes that such claims need: names and statements.
pub(super) fn indexes(choice: Choice) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fifo = ("ruststream_messages_key", FIFO_INDEX);
    let priority = ("ruststream_messages_priority", PRIORITY_INDEX);
    let all = [(choice.fifo, fifo), (choice.priority, priority)];
    all.into_iter().filter_map(|(needed, index)| needed.then_some(index))
}

/// What two that make the same index at once are told: the second finds it made.
const INDEX_IS_THERE: u16 = 1061;

/// What two that add the same columns at once, or one that died before it could write it down, are told.
const COLUMN_IS_THERE: u16 = 1060;

/// The unique key of a row is there.
const DUPLICATE: u16 = 1062;

/// Whether this says that the work is done.
pub(super) fn is_done(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(INDEX_IS_THERE | COLUMN_IS_THERE))
}

/// Whether this says that the unique key of a row is there.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(DUPLICATE)
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// The version that the migrations lead to.
const KNOWN: i64 = MIGRATIONS.len().cast_signed() as i64;

/// Held by one connection to a database at a time, for as long as it migrates; the name has at most 64 letters.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('ruststream_', MD5(DATABASE())), 10)";
const UNLOCK: &str = "DO RELEASE_LOCK(CONCAT('ruststream_', MD5(DATABASE())))";

/// All that makes the newest tables where there are none.
pub(super) fn ddl() -> String {
    let migrations = MIGRATIONS.join(";\n");
    format!("{META};\n{migrations};\nINSERT INTO ruststream_meta (name, version) VALUES ('{TABLE}', {KNOWN});\n")
}

/// Makes and migrates the tables, or checks that they are there.
pub(super) async fn prepare(connection: &mut MySqlConnection, migrate: bool) -> Result<(), PrepareError> {
    let version = checked_version(connection).await?;
    if version == KNOWN {
        return Ok(());
    }
    if !migrate {
        return Err(PrepareError::Failed(Failure::new(
            ErrorKind::Incompatible,
            format!(
                "the table {TABLE} has version {version} and this version of ruststream-sqlx needs {KNOWN}: run the statements \
                 of `SqlxBroker::<MySql>::ddl()`, or let the crate do it with `.migrate(true)`"
            ),
        )));
    }
    // Of ten processes that start at once, the first does the work and the others find it done.
    let locked: Option<i64> = connection.fetch_one(sqlx::query(LOCK)).await?.try_get_unchecked(0)?;
    if locked != Some(1) {
        return Err(PrepareError::Failed(Failure::new(
            ErrorKind::Busy,
            "another process migrates the tables for longer than ten seconds; try again, or look what holds it up",
        )));
    }
    let migrated = run(connection).await;
    let _ = connection.execute(UNLOCK).await;
    migrated
}

async fn run(connection: &mut MySqlConnection) -> Result<(), PrepareError> {
    let version = checked_version(connection).await?;
    for (from, statement) in (0..KNOWN).zip(MIGRATIONS).skip(version as usize) {
        if from == 0 {
            connection.execute(META).await?;
        }
        match connection.execute(statement).await {
            Err(error) if is_done(&error) => {}
            done => done.map(drop)?,
        }
        let to = from + 1;
        let record = format!("REPLACE INTO ruststream_meta (name, version) VALUES ('{TABLE}', {to})");
        connection.execute(AssertSqlSafe(record)).await?;
    }
    Ok(())
}

/// The version of the table; zero where there is none, or where one was begun.
async fn checked_version(connection: &mut MySqlConnection) -> Result<i64, PrepareError> {
    let tables = "SELECT table_name, table_comment FROM information_schema.tables \
                  WHERE table_schema = DATABASE() AND table_name IN ('ruststream_meta', 'ruststream_messages')";
    let (mut meta, mut messages, mut ours) = (false, false, false);
    for row in connection.fetch_all(sqlx::query(tables)).await? {
        let name: Vec<u8> = row.try_get_unchecked(0)?;
        let comment: Vec<u8> = row.try_get_unchecked(1)?;
        if name == TABLE.as_bytes() {
            messages = true;
            ours = comment == COMMENT.as_bytes();
        } else {
            meta = true;
        }
    }
    let mut version = 0;
    if meta {
        let query = format!("SELECT version FROM ruststream_meta WHERE name = '{TABLE}'");
        if let Some(row) = connection.fetch_optional(AssertSqlSafe(query)).await? {
            version = row.try_get_unchecked(0)?;
        }
    }
    if version > KNOWN {
        return Err(PrepareError::Failed(Failure::new(
            ErrorKind::Incompatible,
            format!(
                "the database has version {version} of the table {TABLE}, and this version of ruststream-sqlx knows versions up \
                 to {KNOWN}: upgrade ruststream-sqlx, or name another database"
            ),
        )));
    }
    if version < 0 || (version > 0 && !messages) || (version == 0 && messages && !ours) {
        return Err(PrepareError::Failed(Failure::new(
            ErrorKind::Incompatible,
            format!(
                "the database has {} a table {TABLE} while the table ruststream_meta says version {version}: name another \
                 database, or restore the two tables together",
                if messages { "already" } else { "no" }
            ),
        )));
    }
    Ok(version)
}
