//! Connections to the server, and the one way that statements take.

use std::sync::Arc;

use ruststream::transport::TransportError;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions, Connection, Executor};
use tokio::task::AbortHandle;

use super::answers::store_and_tell;
use super::{error, listen, schema, statements};
use crate::fetch::InboxRow;
use crate::server::{Base, Connects, Dialect, Judgement, PrepareError};
use crate::transaction::publish::sealed::{self, Rows};
use crate::transaction::{Begins, Lends, Stores, extract};

pub(crate) struct PostgresDialect {
    pub(super) options: PgConnectOptions,
    prepared: bool,
    notifications: bool,
    /// Whether rows written by plain SQL are told of.
    trigger: bool,
    /// Says in notifications which connection they are from.
    pub(super) tag: String,
}

impl PostgresDialect {
    pub(super) fn new(options: PgConnectOptions, prepared: bool, notifications: bool, trigger: bool) -> Self {
        let mut options = options.disable_statement_logging();
        if !prepared {
            options = options.statement_cache_capacity(0);
        }
        Self {
            options,
            prepared,
            notifications,
            trigger,
            tag: format!("{:016x}", fastrand::u64(..)),
        }
    }
}

/// A connection of one task.
pub(crate) struct Link {
    connection: PgConnection,
    prepared: bool,
}

impl Link {
    /// Runs a statement and answers its rows.
    pub(super) async fn rows(&mut self, sql: &'static str, arguments: PgArguments) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.prepared {
            return self.connection.fetch_all(sqlx::query_with(sql, arguments)).await;
        }
        // Preparing and running are two round trips, which a pooler keeps on one connection only within a transaction.
        self.connection.execute("BEGIN").await?;
        self.connection.execute(statements::PLAN_WITHIN).await?;
        let query = sqlx::query_with(sql, arguments).persistent(false);
        let rows = self.connection.fetch_all(query).await;
        self.end(rows.is_ok()).await?;
        rows
    }

    /// Runs a statement and answers how many rows it changed.
    pub(super) async fn change(&mut self, sql: &'static str, arguments: PgArguments) -> Result<u64, sqlx::Error> {
        if self.prepared {
            let done = self.connection.execute(sqlx::query_with(sql, arguments)).await?;
            return Ok(done.rows_affected());
        }
        self.connection.execute("BEGIN").await?;
        self.connection.execute(statements::PLAN_WITHIN).await?;
        let query = sqlx::query_with(sql, arguments).persistent(false);
        let done = self.connection.execute(query).await;
        self.end(done.is_ok()).await?;
        Ok(done?.rows_affected())
    }

    async fn end(&mut self, well: bool) -> Result<(), sqlx::Error> {
        let ended = self.connection.execute(if well { "COMMIT" } else { "ROLLBACK" }).await;
        // What went wrong before is the better answer.
        if well { ended.map(drop) } else { Ok(()) }
    }
}

impl Connects for PostgresDialect {
    type Connection = Link;

    async fn connect(&self) -> Result<Link, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        if self.prepared {
            connection.execute(statements::PLAN).await?;
        }
        Ok(Link {
            connection,
            prepared: self.prepared,
        })
    }

    async fn prepare(&self, link: &mut Link, migrate: bool) -> Result<(), PrepareError> {
        schema::prepare(&mut link.connection, migrate).await?;
        if self.trigger && migrate {
            schema::install_trigger(&mut link.connection).await?;
        }
        Ok(())
    }

    async fn close(link: Link) {
        let _ = link.connection.close().await;
    }

    fn judge(&self, error: &sqlx::Error) -> Judgement {
        error::judge(error)
    }

    fn listen(base: &Arc<Base<Self>>) -> Option<AbortHandle> {
        // To listen through a pooler would leave its connection listening, for whoever has it next.
        let on = base.dialect.notifications && base.dialect.prepared;
        on.then(|| tokio::spawn(listen::run(Arc::clone(base))).abort_handle())
    }

    fn tells(&self) -> bool {
        self.notifications
    }
}

impl Dialect for PostgresDialect {}

impl Begins for PostgresDialect {
    type Raw = PgConnection;

    async fn open(&self) -> Result<PgConnection, sqlx::Error> {
        self.options.connect().await
    }

    async fn begin(raw: &mut PgConnection) -> Result<(), sqlx::Error> {
        raw.execute("BEGIN").await.map(drop)
    }

    async fn ack(raw: &mut PgConnection, id: i64, token: i64) -> Result<bool, sqlx::Error> {
        let ack = sqlx::query(statements::ACK_ONE).bind(id).bind(token);
        Ok(raw.execute(ack).await?.rows_affected() == 1)
    }

    async fn commit(raw: &mut PgConnection) -> Result<(), sqlx::Error> {
        raw.execute("COMMIT").await.map(drop)
    }

    async fn rollback(raw: &mut PgConnection) -> Result<(), sqlx::Error> {
        raw.execute("ROLLBACK").await.map(drop)
    }
}

impl Stores for PgConnection {
    async fn store(&mut self, Rows(rows): Rows) -> Result<(), TransportError> {
        let mut wake: Vec<Arc<str>> = rows.iter().map(|row| Arc::clone(&row.queue)).collect();
        wake.sort_unstable();
        wake.dedup();
        let storing = async {
            let values = store_and_tell(&rows, "", &wake)?;
            self.execute(sqlx::query_with(statements::STORE_AND_TELL, values)).await
        };
        match storing.await {
            Ok(_) => Ok(()),
            Err(error) => {
                let judged = error::judge(&error);
                Err(TransportError::new(judged.kind, judged.text).with_cause(error))
            }
        }
    }
}

impl sealed::Sealed for PgConnection {}
impl extract::sealed::Sealed for super::Postgres {}

impl Lends for super::Postgres {
    type Connection = PgConnection;

    async fn borrow(row: &InboxRow, attempt: u32) -> Result<extract::sealed::Borrowed<PgConnection>, TransportError> {
        extract::borrow::<PostgresDialect>(row, attempt).await
    }
}
