//! SQLite files as queues.

mod hand;
mod lease;
mod own;
mod publish;
mod reply;

use std::collections::BTreeMap;
use std::path::PathBuf;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;

use crate::facts;
use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// The queue that is read.
const QUEUE: &str = "orders";

/// Where replies go.
const REPLIES: &str = "receipts";

/// What a tuned loop claims and settles at a time, and the size of a batch.
const CHUNK: usize = 64;

/// The command whose round trip is measured.
const TRIP: &str = "select 1";

/// A folder for the files of the scenarios.
pub struct Sqlite {
    folder: TempDir,
}

impl Transport for Sqlite {
    const NAME: &'static str = "sqlite";
    const BOUND: Bound = Bound::Database;
    const CLIENTS: &'static [&'static str] = &["sqlx"];

    fn scenarios() -> Vec<Scenario<Self>> {
        let mut scenarios = lease::scenarios();
        scenarios.extend(publish::scenarios());
        scenarios.push(reply::scenario());
        scenarios
    }

    async fn open() -> Result<Self, Failed> {
        Ok(Self {
            folder: tempfile::Builder::new().prefix("ruststream-bench-").tempdir()?,
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let file = self.file()?;
        let mut connection = file.connect().await?;
        let asked = |name: &'static str| format!("PRAGMA {name}");
        let mut settings = BTreeMap::from([("file_system".to_owned(), facts::file_system(self.folder.path()))]);
        for name in [
            "journal_mode",
            "page_size",
            "cache_size",
            "wal_autocheckpoint",
            "synchronous",
        ] {
            let row = connection.fetch_one(sqlx::AssertSqlSafe(asked(name))).await?;
            settings.insert(name.to_owned(), shown(name, &row)?);
        }
        let version: String = sqlx::query_scalar("SELECT sqlite_version()")
            .fetch_one(&mut connection)
            .await?;
        let trip = round_trip(&mut connection, |connection| {
            Box::pin(async move {
                connection.fetch_one("SELECT 1").await?;
                Ok(())
            })
        })
        .await?;
        connection.close().await?;
        Ok(Some(Server {
            version: format!("SQLite {version}, in the process"),
            settings,
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

/// The value of a pragma as people know it.
fn shown(name: &str, row: &sqlx::sqlite::SqliteRow) -> Result<String, Failed> {
    use sqlx::Row as _;
    if name == "journal_mode" {
        return Ok(row.try_get(0)?);
    }
    let number: i64 = row.try_get(0)?;
    Ok(match (name, number) {
        ("synchronous", 1) => "normal".to_owned(),
        ("synchronous", 2) => "full".to_owned(),
        _ => number.to_string(),
    })
}

impl Sqlite {
    /// A file of its own for one call of a loop. It ends with its value.
    fn file(&self) -> Result<File, Failed> {
        let folder = tempfile::tempdir_in(self.folder.path())?;
        Ok(File {
            path: folder.path().join("bench.db"),
            _folder: folder,
        })
    }
}

struct File {
    path: PathBuf,
    _folder: TempDir,
}

impl File {
    /// A connection as one would open it by hand, with the settings of the crate's own.
    async fn connect(&self) -> Result<SqliteConnection, Failed> {
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .disable_statement_logging();
        Ok(options.connect().await?)
    }

    /// Empties the log, so that no loop pays for what filled its file.
    async fn checkpoint(&self) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
        Ok(connection.close().await?)
    }

    /// How many rows the crate's table has for a queue.
    async fn stored(&self, queue: &str) -> Result<u64, Failed> {
        let mut connection = self.connect().await?;
        let query = sqlx::query_scalar("SELECT count(*) FROM ruststream_messages WHERE queue = ?");
        let count: i64 = query.bind(queue).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(u64::try_from(count)?)
    }
}

fn now() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
