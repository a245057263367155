//! Reads apart from the writer, on a connection of its own that is opened when it is first needed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ruststream::message::HeaderMap;
use ruststream::transport::ErrorKind;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, Connection, Executor, Row};
use tokio::sync::mpsc;

use super::error::failure;
use super::identity::Identity;
use super::{Settings, schema, statements};
use crate::clock::from_millis;
use crate::dead_letters::{DeadMessage, QueueCounts};
use crate::error::Failure;
use crate::operation::{Letters, Operation, Which};

/// How long one read may take, its wait for others included.
const DEADLINE: Duration = Duration::from_secs(30);

/// Reads dead letters and counts.
pub(super) struct Reader {
    settings: Arc<Settings>,
    connection: Option<(SqliteConnection, Option<Identity>)>,
}

impl Reader {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            connection: None,
        }
    }

    pub(super) async fn run(mut self, mut receiver: mpsc::Receiver<Operation>) {
        let mut closing = None;
        while let Some(operation) = receiver.recv().await {
            match operation {
                Operation::Letters(Letters { which, reply }) => drop(reply.send(self.letters(which).await)),
                Operation::Count { queue, reply } => drop(reply.send(self.count(&queue).await)),
                Operation::Close { reply } => {
                    closing = Some(reply);
                    break;
                }
                _ => {}
            }
        }
        if let Some((connection, _)) = self.connection.take() {
            let _ = connection.close().await;
        }
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }

    async fn letters(&mut self, which: Which) -> Result<Vec<DeadMessage>, Failure> {
        let (sql, arguments) = match which {
            Which::Of { queue, after, limit } => {
                let arguments = arguments(|values| {
                    values.add(&*queue)?;
                    values.add(after)?;
                    values.add(limit)
                })?;
                (statements::DEAD_LIST, arguments)
            }
            Which::One { id } => (statements::DEAD_SHOW, arguments(|values| values.add(id))?),
        };
        let rows = self.rows(sql, arguments).await?;
        let decoded: Result<_, sqlx::Error> = rows.iter().map(decode).collect();
        decoded.map_err(|error| failure(error, &self.settings.path))
    }

    async fn count(&mut self, queue: &str) -> Result<QueueCounts, Failure> {
        let now = self.settings.clock.now();
        let arguments = arguments(|values| {
            for _ in 0..3 {
                values.add(now)?;
            }
            values.add(queue)?;
            values.add(queue)
        })?;
        let rows = self.rows(statements::COUNTS, arguments).await?;
        let Some(row) = rows.first() else {
            return Ok(QueueCounts::default());
        };
        let count = |index: usize| -> Result<u64, Failure> {
            let count: i64 = row
                .try_get(index)
                .map_err(|error| failure(error, &self.settings.path))?;
            Ok(count.max(0).cast_unsigned())
        };
        Ok(QueueCounts {
            ready: count(0)?,
            leased: count(1)?,
            scheduled: count(2)?,
            dead: count(3)?,
        })
    }

    async fn rows(&mut self, sql: &'static str, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, Failure> {
        let Self { settings, connection } = self;
        let reading = async {
            // Taken out while it reads: what fails leaves no half-read connection behind.
            let now = Identity::of(&settings.path);
            let mut open = match connection.take() {
                Some((open, identity)) if identity == now => open,
                _ => schema::open_reader(settings).await?,
            };
            let query = sqlx::query_with(sql, arguments);
            let rows = open
                .fetch(query)
                .try_collect()
                .await
                .map_err(|error| failure(error, &settings.path))?;
            *connection = Some((open, now));
            Ok(rows)
        };
        tokio::time::timeout(DEADLINE, reading).await.unwrap_or_else(|_| {
            Err(Failure::new(
                ErrorKind::Timeout,
                format!("{} was not read within {DEADLINE:?}", self.settings.path.display()),
            ))
        })
    }
}

fn arguments(
    fill: impl FnOnce(&mut SqliteArguments) -> Result<(), sqlx::error::BoxDynError>,
) -> Result<SqliteArguments, Failure> {
    let mut arguments = SqliteArguments::default();
    match fill(&mut arguments) {
        Ok(()) => Ok(arguments),
        Err(error) => Err(Failure::new(ErrorKind::Invalid, error.to_string())),
    }
}

fn decode(row: &SqliteRow) -> Result<DeadMessage, sqlx::Error> {
    let header_block: Vec<u8> = row.try_get_unchecked::<Option<Vec<u8>>, _>(9)?.unwrap_or_default();
    let attempts: i64 = row.try_get(4)?;
    Ok(DeadMessage {
        id: row.try_get(0)?,
        queue: row.try_get(1)?,
        reason: row.try_get(2)?,
        error: row.try_get(3)?,
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        source: row.try_get(5)?,
        dead_at: from_millis(row.try_get(6)?),
        published_at: from_millis(row.try_get(7)?),
        key: row.try_get_unchecked(8)?,
        headers: HeaderMap::from_block(&header_block).unwrap_or_default(),
        header_block,
        payload: row.try_get_unchecked(10)?,
    })
}
