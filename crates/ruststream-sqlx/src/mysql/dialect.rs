//! Connections to the server, and the ways that statements take.

use std::fmt::Write as _;

use futures_util::TryStreamExt;
use ruststream::transport::TransportError;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either, Executor};

use super::answers::columns;
use super::{error, schema, statements};
use crate::fetch::InboxRow;
use crate::server::{Connects, Dialect, Judgement, PrepareError};
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

    /// Runs a prepared statement.
    pub(super) async fn prepared(
        &mut self,
        sql: AssertSqlSafe<String>,
        arguments: MySqlArguments,
    ) -> Result<(), sqlx::Error> {
        self.connection
            .execute(sqlx::query_with(sql, arguments))
            .await
            .map(drop)
    }
}

impl Connects for MySqlDialect {
    type Connection = Link;

    async fn connect(&self) -> Result<Link, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        connection.execute(statements::SESSION).await?;
        Ok(Link { connection })
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

impl Begins for MySqlDialect {
    type Raw = MySqlConnection;

    async fn open(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        connection.execute(statements::SESSION).await?;
        Ok(connection)
    }

    async fn begin(raw: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        raw.execute("START TRANSACTION").await.map(drop)
    }

    async fn ack(raw: &mut MySqlConnection, id: i64, token: i64) -> Result<bool, sqlx::Error> {
        let ack = sqlx::query(statements::ACK_ONE).bind(id).bind(token);
        Ok(raw.execute(ack).await?.rows_affected() == 1)
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
        let mut rest = &rows[..];
        while !rest.is_empty() {
            let (group, tail) = rest.split_at(statements::insert_size(rest.len()));
            rest = tail;
            let storing = async {
                let insert = AssertSqlSafe(statements::insert(group.len()));
                self.execute(sqlx::query_with(insert, columns(group)?)).await
            };
            if let Err(error) = storing.await {
                let judged = error::judge(&error);
                return Err(TransportError::new(judged.kind, judged.text).with_cause(error));
            }
        }
        Ok(())
    }
}

impl sealed::Sealed for MySqlConnection {}
impl extract::sealed::Sealed for super::MySql {}

impl Lends for super::MySql {
    type Connection = MySqlConnection;

    async fn borrow(
        row: &InboxRow,
        attempt: u32,
    ) -> Result<extract::sealed::Borrowed<MySqlConnection>, TransportError> {
        extract::borrow::<MySqlDialect>(row, attempt).await
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
