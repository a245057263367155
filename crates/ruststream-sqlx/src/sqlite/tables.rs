//! The task that works on tables of the user's own, on a connection of its own.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ruststream::transport::ErrorKind;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Connection, Either, Executor, Row};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::error::{failure, is_busy};
use super::{Settings, schema};
use crate::error::Failure;
use crate::operation::Operation;
use crate::table::{Flavour, Speaks, TableAnswer, TableWork, give_back, work};

/// How long one thing may take, before its connection is given up.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) async fn run(settings: Arc<Settings>, mut receiver: mpsc::Receiver<Operation>) {
    let mut open = None;
    let mut closing = None;
    while let Some(operation) = receiver.recv().await {
        match operation {
            Operation::Table(work, reply) => {
                let answer = ask(&settings, &mut open, &work).await;
                // No one takes it any more: the rows go back at once.
                if let Err(Ok(answer)) = reply.send(answer)
                    && let Some(back) = give_back(&work, &answer)
                {
                    let _ = ask(&settings, &mut open, &back).await;
                }
            }
            Operation::Close { reply } => {
                closing = Some(reply);
                break;
            }
            _ => {}
        }
    }
    if let Some(Session(connection)) = open {
        let _ = connection.close().await;
    }
    if let Some(reply) = closing {
        let _ = reply.send(Ok(()));
    }
}

/// Asks, waiting for other writers as long as the settings say.
async fn ask(settings: &Settings, open: &mut Option<Session>, asked: &TableWork) -> Result<TableAnswer, Failure> {
    let deadline = Instant::now() + settings.busy_timeout;
    loop {
        // Taken out while it works: what fails half way leaves no connection behind.
        let mut session = match open.take() {
            Some(session) => session,
            None => Session(schema::open_writer(settings).await?),
        };
        match timeout(DEADLINE, work(&mut session, asked)).await {
            Ok(Ok(answer)) => {
                *open = Some(session);
                return match answer {
                    TableAnswer::Failed(failure) => Err(failure),
                    answer => Ok(answer),
                };
            }
            Ok(Err(error)) if is_busy(&error) && Instant::now() < deadline => {
                *open = Some(session);
                tokio::time::sleep(Duration::from_micros(fastrand::u64(500..8_000))).await;
            }
            Ok(Err(error)) => {
                let failure = failure(error, &settings.path);
                if !failure.lost {
                    *open = Some(session);
                }
                return Err(failure);
            }
            Err(_) => {
                return Err(Failure::lost(
                    ErrorKind::Timeout,
                    format!("{} did not answer within {DEADLINE:?}", settings.path.display()),
                ));
            }
        }
    }
}

struct Session(SqliteConnection);

impl Speaks for Session {
    type Row = SqliteRow;

    const FLAVOUR: Flavour = Flavour::Sqlite;

    async fn run(&mut self, texts: String) -> Result<(Vec<SqliteRow>, u64), sqlx::Error> {
        let mut rows = Vec::new();
        let mut changed = 0;
        let mut answers = self.0.fetch_many(sqlx::raw_sql(AssertSqlSafe(texts)));
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(done) => changed += done.rows_affected(),
                Either::Right(row) => rows.push(row),
            }
        }
        Ok((rows, changed))
    }

    async fn insert(&mut self, text: &str, arguments: &(dyn Any + Send + Sync)) -> Result<u64, sqlx::Error> {
        let arguments = arguments.downcast_ref::<SqliteArguments>().cloned().unwrap_or_default();
        let insert = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments);
        Ok(self.0.execute(insert).await?.rows_affected())
    }

    fn number(row: &SqliteRow, column: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get_unchecked(column)
    }

    fn text(row: &SqliteRow, column: usize) -> Result<String, sqlx::Error> {
        row.try_get_unchecked(column)
    }

    fn bytes(row: &SqliteRow, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        row.try_get_unchecked(column)
    }
}
