//! The file that a writer writes: opened when needed, under deadlines, with bounded waits for other writers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ruststream::transport::ErrorKind;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Executor, Row};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::Settings;
use super::error::{failure, is_busy};
use super::identity::Identity;
use super::plan::{Answer, Plan, pairs};
use super::{schema, statements};
use crate::engine::Counters;
use crate::error::{Failure, Trouble};
use crate::operation::LostRow;

/// How long the file may take over one transaction, before its connection is given up.
const DEADLINE: Duration = Duration::from_secs(30);

/// The one connection that writes.
pub(super) struct Database {
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    open: Option<Open>,
}

struct Open {
    connection: SqliteConnection,
    /// Told when a transaction begins to commit.
    commits: Arc<Notify>,
    identity: Option<Identity>,
    data_version: i64,
}

impl Database {
    pub(super) fn new(settings: Arc<Settings>, counters: Arc<Counters>) -> Self {
        Self {
            settings,
            counters,
            open: None,
        }
    }

    /// Takes a connection that was just opened.
    pub(super) async fn install(&mut self, mut connection: SqliteConnection) -> Result<(), Failure> {
        Counters::count(&self.counters.opened);
        let commits = Arc::new(Notify::new());
        let commit = Arc::clone(&commits);
        connection
            .lock_handle()
            .await
            .map_err(|error| failure(error, &self.settings.path))?
            .set_commit_hook(move || {
                commit.notify_one();
                true
            });
        self.open = Some(Open {
            connection,
            commits,
            identity: Identity::of(&self.settings.path),
            data_version: 0,
        });
        let version = self.data_version().await?;
        if let Some(open) = &mut self.open {
            open.data_version = version;
        }
        Ok(())
    }

    /// Opens the file unless it is open. A file that was replaced is an error once, and opened by the next call.
    pub(super) async fn open(&mut self) -> Result<(), Failure> {
        if let Some(open) = &self.open {
            if open.identity.is_none() || Identity::of(&self.settings.path) == open.identity {
                return Ok(());
            }
            self.open = None;
            let path = self.settings.path.display();
            tracing::error!(%path, "the file was moved, deleted or replaced under its connection");
            return Err(Failure::lost(
                ErrorKind::Unavailable,
                format!("{path} was moved, deleted or replaced; it is opened again on the next call"),
            ));
        }
        let connection = schema::open_writer(&self.settings).await?;
        let installed = self.install(connection).await;
        if installed.is_err() {
            self.open = None;
        }
        installed
    }

    /// Runs a transaction, waiting for other writers as long as the settings say.
    pub(super) async fn transact(
        &mut self,
        operations: usize,
        answers: &mut Vec<Answer>,
        plan: impl Fn(i64) -> Plan,
    ) -> Result<(), Trouble> {
        let deadline = Instant::now() + self.settings.busy_timeout;
        let mut attempt = 0;
        loop {
            if self.open.is_none() {
                self.open().await?;
            }
            let Some(open) = &mut self.open else {
                return Err(Failure::closed(&self.settings.path.display().to_string()).into());
            };
            answers.clear();
            answers.resize_with(operations, Answer::default);
            // Planned anew for each attempt: the wait is no part of a lease.
            let mut plan = plan(self.settings.clock.now());
            plan.finish();
            Counters::count(&self.counters.transactions);
            let error = match timeout(DEADLINE, plan.run(&mut open.connection, &open.commits, answers)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => {
                    // Its thread may be stuck in the middle: it is left behind.
                    self.open = None;
                    let text = format!(
                        "{} did not take a transaction within {DEADLINE:?}",
                        self.settings.path.display()
                    );
                    return Err(Trouble::Lost(Failure::lost(ErrorKind::Timeout, text)));
                }
            };
            // Fails where no transaction was begun, or where SQLite has ended it by itself.
            let _ = timeout(DEADLINE, open.connection.execute(statements::ROLLBACK)).await;
            let busy = is_busy(&error);
            if busy && Instant::now() < deadline {
                Counters::count(&self.counters.busy_retries);
                sleep(busy_pause(attempt)).await;
                attempt += 1;
                continue;
            }
            let failure = failure(error, &self.settings.path);
            if failure.lost {
                self.open = None;
            }
            return Err(if busy {
                Trouble::Contended(failure)
            } else {
                failure.into()
            });
        }
    }

    /// Lets go of the connection: the next call opens a new one.
    pub(super) fn let_go(&mut self) {
        self.open = None;
    }

    pub(super) async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = timeout(DEADLINE, open.connection.close()).await;
        }
    }

    /// True once after another connection wrote to the file.
    pub(super) async fn was_written(&mut self) -> Result<bool, Failure> {
        self.open().await?;
        let version = self.data_version().await?;
        Ok(self.open.as_mut().is_some_and(|open| {
            let changed = open.data_version != version;
            open.data_version = version;
            changed
        }))
    }

    /// Reads a page of the file.
    pub(super) async fn ping(&mut self) -> Result<(), Failure> {
        self.open().await?;
        self.row(statements::PING, None).await.map(|_| ())
    }

    async fn data_version(&mut self) -> Result<i64, Failure> {
        let row = self.row(statements::DATA_VERSION, None).await?;
        Ok(row.and_then(|row| row.try_get(0).ok()).unwrap_or(0))
    }

    /// When the first row of a queue is due.
    pub(super) async fn next_due(&mut self, queue: &str) -> Result<Option<i64>, Failure> {
        let row = self.row(statements::NEXT_DUE, Some(queue)).await?;
        Ok(row.and_then(|row| row.try_get(0).ok()))
    }

    /// Which of these rows are not leased under their token any more.
    pub(super) async fn lost_rows(&mut self, rows: &[(i64, i64)]) -> Result<Vec<LostRow>, Failure> {
        let list = pairs(rows);
        let rows = self.rows(statements::LOST, Some(&list)).await?;
        let decode = |row: &SqliteRow| -> Result<LostRow, sqlx::Error> {
            Ok(LostRow {
                id: row.try_get_unchecked(0)?,
                token: row.try_get_unchecked(1)?,
                gone: row.try_get_unchecked(2)?,
            })
        };
        rows.iter()
            .map(|row| decode(row).map_err(|error| failure(error, &self.settings.path)))
            .collect()
    }

    async fn row(&mut self, sql: &'static str, text: Option<&str>) -> Result<Option<SqliteRow>, Failure> {
        Ok(self.rows(sql, text).await?.into_iter().next())
    }

    /// A small read on the writer's connection, under the writer's deadlines.
    async fn rows(&mut self, sql: &'static str, text: Option<&str>) -> Result<Vec<SqliteRow>, Failure> {
        let deadline = Instant::now() + self.settings.busy_timeout;
        let mut attempt = 0;
        loop {
            let Some(open) = &mut self.open else {
                return Err(Failure::closed(&self.settings.path.display().to_string()));
            };
            let query = match text {
                Some(text) => sqlx::query(sql).bind(text),
                None => sqlx::query(sql),
            };
            let read = timeout(DEADLINE, open.connection.fetch(query).try_collect()).await;
            match read {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_busy(&error) && Instant::now() < deadline => {
                    Counters::count(&self.counters.busy_retries);
                    sleep(busy_pause(attempt)).await;
                    attempt += 1;
                }
                Ok(Err(error)) => return Err(failure(error, &self.settings.path)),
                Err(_) => {
                    self.open = None;
                    let text = format!("{} was not read within {DEADLINE:?}", self.settings.path.display());
                    return Err(Failure::lost(ErrorKind::Timeout, text));
                }
            }
        }
    }
}

/// How long to wait for another writer before the next attempt: short at first, then up to 16 ms, never in step with others.
fn busy_pause(attempt: u32) -> Duration {
    let ceiling = 1_000_u64 << attempt.min(4);
    Duration::from_micros(fastrand::u64(200..=ceiling))
}
