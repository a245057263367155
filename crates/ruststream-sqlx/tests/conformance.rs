//! SQLite files pass the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test that has no folder is a failed test")]

use std::time::Duration;

use ruststream::conformance::Harness;
use ruststream::transport::{Broker, TransportError};
use ruststream_sqlx::{Inbox, SqlxBroker};
use tempfile::TempDir;

/// A file of its own for each check; each broker has its own connection to it, as another process would.
struct SqliteFile {
    folder: TempDir,
}

impl Harness for SqliteFile {
    type Broker = SqlxBroker;

    async fn start() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn broker(&self) -> SqlxBroker {
        SqlxBroker::sqlite(self.folder.path().join("queue.db"))
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<Inbox> {
        Some(Inbox::queue(name).lease(lease))
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.broker().connect().await?;
        let letters = connection.dead_letters().list(name, 1000).await?;
        Ok(Some(letters.into_iter().map(|letter| letter.payload).collect()))
    }
}

ruststream::conformance::suite!(SqliteFile);
