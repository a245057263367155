//! A file in a directory of its own.

use std::str::FromStr;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Executor, Row};
use tempfile::TempDir;

pub(crate) type Database = sqlx::Sqlite;
pub(crate) type Pool = sqlx::SqlitePool;

pub(crate) struct Place {
    directory: Option<TempDir>,
    url: String,
}

impl Place {
    #[allow(clippy::unused_async, reason = "the places of servers are made on a server")]
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", directory.path().join("shop.db").display());
        Self {
            directory: Some(directory),
            url,
        }
    }

    pub(crate) fn at(url: &str) -> Self {
        Self {
            directory: None,
            url: url.to_owned(),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    #[allow(clippy::unused_async, reason = "as on servers")]
    pub(crate) async fn pool(&self) -> Pool {
        let options = SqliteConnectOptions::from_str(&self.url)
            .unwrap()
            .journal_mode(SqliteJournalMode::Wal);
        SqlitePoolOptions::new().max_connections(5).connect_lazy_with(options)
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let pool = self.pool().await;
        let row = pool.fetch_one(AssertSqlSafe(sql.to_owned())).await.unwrap();
        row.get(0)
    }

    pub(crate) async fn sql(&self, sql: &str) {
        self.pool().await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }
}
