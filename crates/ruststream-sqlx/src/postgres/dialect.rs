//! Connections to the server, and the one way that statements take.

use std::sync::Arc;

use ruststream::transport::TransportError;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};
use tokio::task::AbortHandle;

use super::answers::{LONGEST_DELAY, more, store_and_tell};
use super::{error, listen, schema, statements};
use crate::fetch::InboxRow;
use crate::operation::NewRow;
use crate::server::{Base, Connects, Dialect, Judgement, Locks, PrepareError};
use crate::terms::Isolation;
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
    pub(super) connection: PgConnection,
    prepared: bool,
    /// A transaction is open, and stays so.
    within: bool,
}

impl Link {
    /// Runs a statement and answers its rows.
    pub(super) async fn rows(&mut self, sql: &'static str, arguments: PgArguments) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.prepared || self.within {
            let query = sqlx::query_with(sql, arguments).persistent(self.prepared);
            return self.connection.fetch_all(query).await;
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
        if self.prepared || self.within {
            let query = sqlx::query_with(sql, arguments).persistent(self.prepared);
            let done = self.connection.execute(query).await?;
            return Ok(done.rows_affected());
        }
        self.connection.execute("BEGIN").await?;
        self.connection.execute(statements::PLAN_WITHIN).await?;
        let query = sqlx::query_with(sql, arguments).persistent(false);
        let done = self.connection.execute(query).await;
        self.end(done.is_ok()).await?;
        Ok(done?.rows_affected())
    }

    /// Runs statements that have no values.
    pub(super) async fn script(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.connection.execute(AssertSqlSafe(sql)).await.map(drop)
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
            within: false,
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

impl Locks for PostgresDialect {
    async fn lock_rows(link: &mut Link, rows: &[(i64, i64)]) -> Result<Vec<i64>, sqlx::Error> {
        link.lock("", rows).await
    }

    async fn go_on(link: &mut Link, rows: &[(i64, i64)], lease: Option<i64>) -> Result<Vec<i64>, sqlx::Error> {
        let extend = lease.map(|lease| {
            format!(
                "UPDATE ruststream_messages SET lease_until = now() + {lease} * interval '1 millisecond' WHERE {};",
                held(rows)
            )
        });
        let before = format!("{} COMMIT;", extend.unwrap_or_default());
        link.lock(&before, rows).await
    }

    async fn end(link: &mut Link) -> Result<(), sqlx::Error> {
        link.within = false;
        link.script("COMMIT").await
    }

    async fn try_lock(link: &mut Link, names: &[String]) -> Result<Vec<bool>, sqlx::Error> {
        let query = sqlx::query(statements::TRY_LOCK).bind(names).persistent(link.prepared);
        let rows = link.connection.fetch_all(query).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    async fn unlock(link: &mut Link, names: &[String]) -> Result<(), sqlx::Error> {
        let query = sqlx::query(statements::UNLOCK).bind(names).persistent(link.prepared);
        link.connection.execute(query).await.map(drop)
    }
}

impl Link {
    /// Begins a transaction and locks rows, in one round trip with what comes before it.
    async fn lock(&mut self, before: &str, rows: &[(i64, i64)]) -> Result<Vec<i64>, sqlx::Error> {
        let plan = if self.prepared { "" } else { statements::PLAN_WITHIN };
        let text = format!(
            "{before} BEGIN; {plan}{}SELECT id FROM ruststream_messages WHERE {} ORDER BY id FOR UPDATE SKIP LOCKED",
            if plan.is_empty() { "" } else { "; " },
            held(rows)
        );
        self.within = true;
        let rows = self.connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }
}

/// The condition that finds rows by ids and tokens.
fn held(rows: &[(i64, i64)]) -> String {
    let pairs: Vec<String> = rows.iter().map(|(id, token)| format!("({id},{token})")).collect();
    let ids: Vec<String> = rows.iter().map(|(id, _)| id.to_string()).collect();
    format!(
        "id = ANY ('{{{}}}'::bigint[]) AND (id, token) IN ({})",
        ids.join(","),
        pairs.join(",")
    )
}

impl Begins for PostgresDialect {
    type Raw = PgConnection;

    async fn open(&self) -> Result<PgConnection, sqlx::Error> {
        self.options.connect().await
    }

    async fn begin(raw: &mut PgConnection, isolation: Option<Isolation>) -> Result<(), sqlx::Error> {
        let begin = match isolation {
            None => "BEGIN".to_owned(),
            Some(isolation) => format!("BEGIN ISOLATION LEVEL {}", isolation.words()),
        };
        raw.execute(AssertSqlSafe(begin)).await.map(drop)
    }

    async fn ack(raw: &mut PgConnection, id: i64, token: i64, keep: Option<i64>) -> Result<bool, sqlx::Error> {
        let ack = match keep {
            None => sqlx::query(statements::ACK_ONE).bind(id).bind(token),
            Some(keep) => sqlx::query(statements::KEEP)
                .bind([id])
                .bind([token])
                .bind([keep.min(LONGEST_DELAY)]),
        };
        Ok(raw.execute(ack).await?.rows_affected() == 1)
    }

    async fn lock(raw: &mut PgConnection, id: i64, token: i64) -> Result<bool, sqlx::Error> {
        let lock = sqlx::query(statements::LOCK_ONE).bind(id).bind(token);
        Ok(raw.fetch_optional(lock).await?.is_some())
    }

    async fn store(raw: &mut PgConnection, rows: &[NewRow]) -> Result<(), sqlx::Error> {
        store(raw, rows).await
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
        store(self, &rows).await.map_err(|error| {
            let judged = error::judge(&error);
            TransportError::new(judged.kind, judged.text).with_cause(error)
        })
    }
}

/// Stores rows inside someone's transaction; who waits for them is told when it commits.
async fn store(connection: &mut PgConnection, rows: &[NewRow]) -> Result<(), sqlx::Error> {
    let mut wake: Vec<Arc<str>> = rows.iter().map(|row| Arc::clone(&row.queue)).collect();
    wake.sort_unstable();
    wake.dedup();
    if rows.iter().all(|row| row.extras.is_none()) {
        let values = store_and_tell(rows, "", &wake)?;
        let store = sqlx::query_with(statements::STORE_AND_TELL, values);
        return connection.execute(store).await.map(drop);
    }
    let store = sqlx::query_with(statements::STORE_MORE, more(rows)?);
    connection.execute(store).await?;
    let wake: Vec<&str> = wake.iter().map(|queue| &**queue).collect();
    let tell = sqlx::query(statements::TELL).bind("").bind(wake);
    connection.execute(tell).await.map(drop)
}

impl sealed::Sealed for PgConnection {}
impl extract::sealed::Sealed for super::Postgres {}

impl Lends for super::Postgres {
    type Connection = PgConnection;

    async fn borrow(row: &InboxRow) -> Result<extract::sealed::Borrowed<PgConnection>, TransportError> {
        extract::borrow::<PostgresDialect>(row).await
    }
}
