//! Connections to the server, and the ways that statements take.

use std::fmt::Write as _;

use futures_util::TryStreamExt;
use ruststream::transport::TransportError;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either, Executor, Row};

use super::answers::{insert, micros};
use super::{error, schema, statements};
use crate::fetch::InboxRow;
use crate::operation::NewRow;
use crate::server::{Connects, Dialect, Judgement, Locks, PrepareError};
use crate::terms::Isolation;
use crate::transaction::publish::sealed::{self, Rows};
use crate::transaction::{Begins, Lends, Stores, extract};

pub(crate) struct MySqlDialect {
    options: MySqlConnectOptions,
}

impl MySqlDialect {
    pub(super) fn new(options: MySqlConnectOptions) -> Self {
        Self {
            options: options.disable_statement_logging(),
        }
    }
}

/// A connection of one task.
///
/// A statement on rows by their ids is a text: its numbers are ours, several texts are one round trip, and none is the same
/// twice. What others wrote is bound to a prepared statement, or written in hexadecimal digits.
pub(crate) struct Link {
    pub(super) connection: MySqlConnection,
    /// A transaction is open, and stays so.
    pub(super) within: bool,
}

impl Link {
    /// Runs texts in one round trip; answers their rows and how many rows they changed.
    pub(super) async fn run(&mut self, texts: String) -> Result<(Vec<MySqlRow>, u64), sqlx::Error> {
        let done = self.try_run(texts).await;
        if done.is_err() {
            // Where a transaction was begun, it is still open.
            let _ = self.connection.execute(statements::ROLLBACK).await;
        }
        done
    }

    async fn try_run(&mut self, texts: String) -> Result<(Vec<MySqlRow>, u64), sqlx::Error> {
        let mut rows = Vec::new();
        let mut changed = 0;
        let mut answers = self.connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(texts)));
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(done) => changed += done.rows_affected(),
                Either::Right(row) => rows.push(row),
            }
        }
        Ok((rows, changed))
    }
}

impl Connects for MySqlDialect {
    type Connection = Link;

    async fn connect(&self) -> Result<Link, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        connection.execute(statements::SESSION).await?;
        Ok(Link {
            connection,
            within: false,
        })
    }

    async fn prepare(&self, link: &mut Link, migrate: bool) -> Result<(), PrepareError> {
        schema::prepare(&mut link.connection, migrate).await
    }

    async fn close(link: Link) {
        let _ = link.connection.close().await;
    }

    fn judge(&self, error: &sqlx::Error) -> Judgement {
        error::judge(error)
    }
}

impl Dialect for MySqlDialect {}

impl Locks for MySqlDialect {
    async fn lock_rows(link: &mut Link, rows: &[(i64, i64)]) -> Result<Vec<i64>, sqlx::Error> {
        link.lock("", rows).await
    }

    async fn go_on(link: &mut Link, rows: &[(i64, i64)], lease: Option<i64>) -> Result<Vec<i64>, sqlx::Error> {
        let extend = lease.map(|lease| {
            format!(
                "UPDATE ruststream_messages FORCE INDEX (PRIMARY) SET lease_until = UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND WHERE {};",
                micros(lease),
                held(rows)
            )
        });
        let before = format!("{} COMMIT; ", extend.unwrap_or_default());
        link.lock(&before, rows).await
    }

    async fn end(link: &mut Link) -> Result<(), sqlx::Error> {
        link.within = false;
        link.run("COMMIT".to_owned()).await.map(drop)
    }

    async fn try_lock(link: &mut Link, names: &[String]) -> Result<Vec<bool>, sqlx::Error> {
        let mut taken = Vec::with_capacity(names.len());
        for name in names {
            let row = link
                .connection
                .fetch_one(sqlx::query(statements::TRY_LOCK).bind(name))
                .await?;
            taken.push(row.try_get_unchecked::<Option<i64>, _>(0)? == Some(1));
        }
        Ok(taken)
    }

    async fn unlock(link: &mut Link, names: &[String]) -> Result<(), sqlx::Error> {
        for name in names {
            link.connection
                .execute(sqlx::query(statements::UNLOCK).bind(name))
                .await?;
        }
        Ok(())
    }
}

impl Link {
    /// Begins a transaction and locks rows, in one round trip with what comes before it.
    async fn lock(&mut self, before: &str, rows: &[(i64, i64)]) -> Result<Vec<i64>, sqlx::Error> {
        let text = format!(
            "{before}START TRANSACTION; SELECT id FROM ruststream_messages FORCE INDEX (PRIMARY) WHERE {} ORDER BY id FOR UPDATE SKIP LOCKED",
            held(rows)
        );
        self.within = true;
        let (rows, _) = self.run(text).await?;
        rows.iter().map(|row| row.try_get_unchecked(0)).collect()
    }
}

impl Begins for MySqlDialect {
    type Raw = MySqlConnection;

    async fn open(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        connection.execute(statements::SESSION).await?;
        Ok(connection)
    }

    async fn begin(raw: &mut MySqlConnection, isolation: Option<Isolation>) -> Result<(), sqlx::Error> {
        if let Some(isolation) = isolation {
            // Of the next transaction alone.
            let set = format!("SET TRANSACTION ISOLATION LEVEL {}", isolation.words());
            raw.execute(AssertSqlSafe(set)).await?;
        }
        raw.execute("START TRANSACTION").await.map(drop)
    }

    async fn ack(raw: &mut MySqlConnection, id: i64, token: i64, keep: Option<i64>) -> Result<bool, sqlx::Error> {
        let done = match keep {
            None => {
                let ack = sqlx::query(statements::ACK_ONE).bind(id).bind(token);
                raw.execute(ack).await?
            }
            Some(keep) => {
                let keep = format!("{} WHERE id = {id} AND token = {token}", statements::keep(keep));
                raw.execute(AssertSqlSafe(keep)).await?
            }
        };
        Ok(done.rows_affected() == 1)
    }

    async fn lock(raw: &mut MySqlConnection, id: i64, token: i64) -> Result<bool, sqlx::Error> {
        let lock = sqlx::query(statements::LOCK_ONE).bind(id).bind(token);
        Ok(raw.fetch_optional(lock).await?.is_some())
    }

    async fn store(raw: &mut MySqlConnection, rows: &[NewRow]) -> Result<(), sqlx::Error> {
        store(raw, rows).await
    }

    async fn commit(raw: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        raw.execute("COMMIT").await.map(drop)
    }

    async fn rollback(raw: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        raw.execute(statements::ROLLBACK).await.map(drop)
    }
}

impl Stores for MySqlConnection {
    async fn store(&mut self, Rows(rows): Rows) -> Result<(), TransportError> {
        store(self, &rows).await.map_err(|error| {
            let judged = error::judge(&error);
            TransportError::new(judged.kind, judged.text).with_cause(error)
        })
    }
}

/// Stores rows inside someone's transaction.
async fn store(connection: &mut MySqlConnection, rows: &[NewRow]) -> Result<(), sqlx::Error> {
    let rows: Vec<_> = rows.iter().collect();
    insert(connection, &rows).await.map(drop)
}

impl sealed::Sealed for MySqlConnection {}
impl extract::sealed::Sealed for super::MySql {}

impl Lends for super::MySql {
    type Connection = MySqlConnection;

    async fn borrow(row: &InboxRow) -> Result<extract::sealed::Borrowed<MySqlConnection>, TransportError> {
        extract::borrow::<MySqlDialect>(row).await
    }
}

/// Bytes as they stand in a text.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(3 + 2 * bytes.len());
    text.push_str("x'");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

/// Numbers with commas between.
pub(super) fn list(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::new();
    for number in numbers {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{number}");
    }
    text
}

/// The condition that finds rows by ids and tokens, in the order of their ids.
pub(super) fn held(rows: &[(i64, i64)]) -> String {
    let ids = list(rows.iter().map(|row| row.0));
    match rows {
        [] => "FALSE".to_owned(),
        [(_, token), rest @ ..] if rest.iter().all(|(_, other)| other == token) => {
            format!("id IN ({ids}) AND token = {token}")
        }
        _ => {
            let mut pairs = String::new();
            for (id, token) in rows {
                let comma = if pairs.is_empty() { "" } else { "," };
                let _ = write!(pairs, "{comma}({id},{token})");
            }
            format!("id IN ({ids}) AND (id, token) IN ({pairs})")
        }
    }
}
