//! A connection for reading, opened when it is first needed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ruststream::transport::ErrorKind;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Connection, Executor};
use tokio::sync::Mutex;

use super::identity::Identity;
use super::schema;
use crate::broker::Settings;
use crate::error::Failure;

/// How long one read may take, its wait for others included.
const DEADLINE: Duration = Duration::from_secs(30);

/// Reads apart from the writer: dead letters and counts.
pub(crate) struct Reader {
    settings: Arc<Settings>,
    connection: Mutex<Option<(SqliteConnection, Option<Identity>)>>,
}

impl Reader {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            connection: Mutex::new(None),
        }
    }

    pub(crate) async fn rows(&self, sql: &'static str, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, Failure> {
        let reading = async {
            let mut place = self.connection.lock().await;
            // Taken out while it reads: a call that is dropped leaves no half-read connection behind.
            let now = Identity::of(&self.settings.path);
            let mut connection = match place.take() {
                Some((connection, identity)) if identity == now => connection,
                _ => schema::open_reader(&self.settings).await?,
            };
            let query = sqlx::query_with(sql, arguments);
            let rows = connection
                .fetch(query)
                .try_collect()
                .await
                .map_err(|error| Failure::from_sqlx(error, &self.settings.path))?;
            *place = Some((connection, now));
            Ok(rows)
        };
        tokio::time::timeout(DEADLINE, reading).await.unwrap_or_else(|_| {
            Err(Failure::new(
                ErrorKind::Timeout,
                format!("{} was not read within {DEADLINE:?}", self.settings.path.display()),
            ))
        })
    }

    pub(crate) async fn close(&self) {
        if let Some((connection, _)) = self.connection.lock().await.take() {
            let _ = connection.close().await;
        }
    }
}
