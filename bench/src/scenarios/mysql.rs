//! Tables of MariaDB as queues.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU32, Ordering};

use ruststream_sqlx::SqlxBroker;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};

use super::server::{self, Database, QUEUE, TRIP};
use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// As careful as the crate's own: a lease is no part of an index.
const TABLE: &str = "
    CREATE TABLE jobs (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, queue VARCHAR(100) CHARACTER SET ascii NOT NULL, attempt INT NOT NULL DEFAULT 0,
        run_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01', token BIGINT,
        headers BLOB, payload BLOB NOT NULL,
        KEY jobs_due (queue, run_at)
    ) ENGINE=InnoDB";

const FILL: &str = "INSERT INTO jobs (queue, payload) SELECT ?, ? FROM seq_1_to_";

const SELECT: &str = "
    SELECT id, attempt, payload, headers FROM jobs WHERE queue = ? AND run_at <= UTC_TIMESTAMP(6) AND lease_until <= UTC_TIMESTAMP(6)
    ORDER BY run_at, id LIMIT ? FOR UPDATE SKIP LOCKED";

const LEASE: &str = "UPDATE jobs SET lease_until = UTC_TIMESTAMP(6) + INTERVAL 30 SECOND, token = ?, attempt = attempt + 1 WHERE id IN (";

/// A server that the benchmarks share.
pub struct MySql {
    url: String,
    next: AtomicU32,
}

impl Transport for MySql {
    const NAME: &'static str = "mysql";
    const BOUND: Bound = Bound::Database;
    const CLIENTS: &'static [&'static str] = &["sqlx"];

    fn scenarios() -> Vec<Scenario<Self>> {
        server::scenarios()
    }

    async fn open() -> Result<Self, Failed> {
        let url = tokio::task::spawn_blocking(|| servers::shared(servers::Kind::Maria)).await??;
        Ok(Self {
            url,
            next: AtomicU32::new(0),
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let mut connection = MySqlConnectOptions::from_str(&self.url)?.connect().await?;
        let version: String = sqlx::query_scalar("SELECT VERSION()")
            .fetch_one(&mut connection)
            .await?;
        let mut settings = BTreeMap::new();
        for name in [
            "innodb_flush_log_at_trx_commit",
            "innodb_buffer_pool_size",
            "innodb_log_file_size",
            "log_bin",
        ] {
            let asked = sqlx::query(AssertSqlSafe(format!("SELECT CAST(@@{name} AS CHAR)")));
            let row = asked.fetch_one(&mut connection).await?;
            settings.insert(name.to_owned(), row.try_get(0)?);
        }
        let trip = round_trip(&mut connection, |connection| {
            Box::pin(async move {
                connection.fetch_one(sqlx::query("SELECT 1")).await?;
                Ok(())
            })
        })
        .await?;
        connection.close().await?;
        Ok(Some(Server {
            version: format!("MariaDB {version}"),
            settings,
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

impl Database for MySql {
    type Broker = SqlxBroker<ruststream_sqlx::MySql>;
    type Place = Tables;

    async fn place(&self) -> Result<Tables, Failed> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{}_{number}", std::process::id());
        let mut connection = MySqlConnectOptions::from_str(&self.url)?.connect().await?;
        connection
            .execute(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await?;
        connection.close().await?;
        let (server, _) = self.url.rsplit_once('/').ok_or("the URL names no database")?;
        Ok(Tables {
            options: MySqlConnectOptions::from_str(&format!("{server}/{name}"))?,
            name,
        })
    }

    fn broker(place: &Tables) -> Self::Broker {
        SqlxBroker::mysql_with(place.options.clone())
    }
}

/// A database for the tables of one call of a loop.
pub struct Tables {
    options: MySqlConnectOptions,
    name: String,
}

impl server::Place for Tables {
    type Connection = MySqlConnection;

    async fn connect(&self) -> Result<MySqlConnection, Failed> {
        let mut connection = self.options.clone().disable_statement_logging().connect().await?;
        connection
            .execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            .await?;
        Ok(connection)
    }

    async fn fill(&self, messages: u64, body: &[u8]) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        connection.execute(TABLE).await?;
        if messages > 0 {
            let fill = sqlx::query(AssertSqlSafe(format!("{FILL}{messages}")))
                .bind(QUEUE)
                .bind(body);
            connection.execute(fill).await?;
        }
        Ok(connection.close().await?)
    }

    async fn claim(connection: &mut MySqlConnection, rows: usize, token: i64) -> Result<Vec<(i64, Vec<u8>)>, Failed> {
        let mut transaction = connection.begin().await?;
        let select = sqlx::query(SELECT).bind(QUEUE).bind(i64::try_from(rows)?);
        let rows: Vec<MySqlRow> = transaction.fetch_all(select).await?;
        let claimed = rows
            .iter()
            .map(|row| {
                let _attempt: i32 = row.try_get(1)?;
                let _headers: Option<&[u8]> = row.try_get(3)?;
                Ok((row.try_get(0)?, row.try_get(2)?))
            })
            .collect::<Result<Vec<(i64, Vec<u8>)>, Failed>>()?;
        if !claimed.is_empty() {
            let marks = marks(claimed.len());
            let lease = sqlx::query(AssertSqlSafe(format!("{LEASE}{marks})"))).bind(token);
            let lease = claimed.iter().fold(lease, |lease, (id, _)| lease.bind(*id));
            transaction.execute(lease).await?;
        }
        transaction.commit().await?;
        Ok(claimed)
    }

    async fn delete(connection: &mut MySqlConnection, ids: &[i64], token: i64) -> Result<(), Failed> {
        let marks = marks(ids.len());
        let delete = sqlx::query(AssertSqlSafe(format!(
            "DELETE FROM jobs WHERE id IN ({marks}) AND token = ?"
        )));
        let delete = ids.iter().fold(delete, |delete, id| delete.bind(*id));
        connection.execute(delete.bind(token)).await?;
        Ok(())
    }

    async fn insert(
        connection: &mut MySqlConnection,
        queue: &'static str,
        messages: Vec<Vec<u8>>,
    ) -> Result<(), Failed> {
        let more = ", (?, ?)".repeat(messages.len() - 1);
        let insert = sqlx::query(AssertSqlSafe(format!(
            "INSERT INTO jobs (queue, payload) VALUES (?, ?){more}"
        )));
        let insert = messages
            .into_iter()
            .fold(insert, |insert, message| insert.bind(queue).bind(message));
        connection.execute(insert).await?;
        Ok(())
    }

    async fn begin_locked(connection: &mut MySqlConnection, rows: usize) -> Result<Vec<(i64, Vec<u8>)>, Failed> {
        connection.execute("START TRANSACTION").await?;
        let select = sqlx::query(SELECT).bind(QUEUE).bind(i64::try_from(rows)?);
        let rows: Vec<MySqlRow> = connection.fetch_all(select).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(2)?))).collect()
    }

    async fn end_locked(connection: &mut MySqlConnection, ids: &[i64]) -> Result<(), Failed> {
        if !ids.is_empty() {
            // By the key: of a small table the server would rather read all rows, and wait for those of others.
            let delete = format!(
                "DELETE j FROM jobs AS j FORCE INDEX (PRIMARY) WHERE id IN ({})",
                marks(ids.len())
            );
            let delete = sqlx::query(AssertSqlSafe(delete));
            let delete = ids.iter().fold(delete, |delete, id| delete.bind(*id));
            connection.execute(delete).await?;
        }
        connection.execute("COMMIT").await?;
        Ok(())
    }

    async fn lock_name(connection: &mut MySqlConnection, name: &str) -> Result<(), Failed> {
        connection
            .fetch_one(sqlx::query("SELECT GET_LOCK(CONCAT(DATABASE(), '/', ?), 0)").bind(name))
            .await?;
        Ok(())
    }

    async fn unlock_name(connection: &mut MySqlConnection, name: &str) -> Result<(), Failed> {
        connection
            .fetch_one(sqlx::query("SELECT RELEASE_LOCK(CONCAT(DATABASE(), '/', ?))").bind(name))
            .await?;
        Ok(())
    }

    async fn deepen(&self, scheduled: u64, body: &[u8]) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        let all = scheduled + scheduled / 5 + scheduled / 20;
        let fill = format!(
            "INSERT INTO ruststream_messages (queue, state, due_at, payload) \
             SELECT ?, IF(seq <= {scheduled}, 0, IF(seq <= {}, 2, 1)), UTC_TIMESTAMP(6) + INTERVAL 1 DAY, ? FROM seq_1_to_{all}",
            scheduled + scheduled / 5
        );
        let fill = sqlx::query(AssertSqlSafe(fill)).bind(QUEUE).bind(body);
        connection.execute(fill).await?;
        Ok(connection.close().await?)
    }

    async fn stored(&self, table: &'static str, queue: &'static str) -> Result<u64, Failed> {
        let mut connection = self.connect().await?;
        let count = format!("SELECT count(*) FROM {table} WHERE queue = ?");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .bind(queue)
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok(u64::try_from(count)?)
    }

    async fn remove(&self) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        let drop = format!("DROP DATABASE {}", self.name);
        connection.execute(AssertSqlSafe(drop)).await?;
        Ok(connection.close().await?)
    }
}

/// Places for so many values.
fn marks(count: usize) -> String {
    vec!["?"; count].join(",")
}
