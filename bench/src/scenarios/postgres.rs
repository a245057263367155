//! Tables of `PostgreSQL` as queues.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU32, Ordering};

use ruststream_sqlx::SqlxBroker;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};

use super::server::{self, Database, QUEUE, TRIP};
use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// As careful as the crate's own: a lease is no part of an index, and pages have room for it.
const TABLE: &str = "
    CREATE TABLE jobs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, attempt int NOT NULL DEFAULT 0,
        run_at timestamptz NOT NULL DEFAULT now(), lease_until timestamptz NOT NULL DEFAULT '-infinity', token bigint,
        headers bytea, payload bytea NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX jobs_due ON jobs (queue, run_at, id)";

const FILL: &str = "INSERT INTO jobs (queue, payload) SELECT $1, $2 FROM generate_series(1, $3)";

const CLAIM: &str = "
    UPDATE jobs SET lease_until = now() + interval '30 seconds', token = $1, attempt = attempt + 1
    WHERE id = ANY (ARRAY (
        SELECT id FROM jobs WHERE queue = $2 AND run_at <= now() AND lease_until <= now()
        ORDER BY run_at, id LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING id, attempt, payload, headers";

const LOCK: &str = "SELECT id, attempt, payload, headers FROM jobs WHERE queue = $1 AND run_at <= now()
    ORDER BY run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED";

const DEEPEN: &str = "
    INSERT INTO ruststream_messages (queue, state, due_at, payload)
    SELECT $1, CASE WHEN n <= $3 THEN 0 WHEN n <= $3 + $3 / 5 THEN 2 ELSE 1 END, now() + interval '1 day', $2
    FROM generate_series(1, $3 + $3 / 5 + $3 / 20) AS n";

/// A server that the benchmarks share.
pub struct Postgres {
    url: String,
    next: AtomicU32,
}

impl Transport for Postgres {
    const NAME: &'static str = "postgres";
    const BOUND: Bound = Bound::Database;
    const CLIENTS: &'static [&'static str] = &["sqlx"];

    fn scenarios() -> Vec<Scenario<Self>> {
        server::scenarios()
    }

    async fn open() -> Result<Self, Failed> {
        let url = tokio::task::spawn_blocking(|| servers::shared(servers::Kind::Postgres)).await??;
        Ok(Self {
            url,
            next: AtomicU32::new(0),
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let mut connection = PgConnectOptions::from_str(&self.url)?.connect().await?;
        let version: String = sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut connection)
            .await?;
        let mut settings = BTreeMap::new();
        for name in [
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "shared_buffers",
            "max_wal_size",
        ] {
            let show = sqlx::query_scalar(AssertSqlSafe(format!("SHOW {name}")));
            settings.insert(name.to_owned(), show.fetch_one(&mut connection).await?);
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
            version: format!("PostgreSQL {version}"),
            settings,
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

impl Database for Postgres {
    type Broker = SqlxBroker<ruststream_sqlx::Postgres>;
    type Place = Schema;

    async fn place(&self) -> Result<Schema, Failed> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{}_{number}", std::process::id());
        let mut connection = PgConnectOptions::from_str(&self.url)?.connect().await?;
        connection
            .execute(AssertSqlSafe(format!("CREATE SCHEMA {name}")))
            .await?;
        // What earlier loops left behind is cleaned up here, and not while this one runs.
        connection.execute("CHECKPOINT").await?;
        connection.close().await?;
        let mark = if self.url.contains('?') { '&' } else { '?' };
        Ok(Schema {
            options: PgConnectOptions::from_str(&format!("{}{mark}options[search_path]={name}", self.url))?,
            name,
        })
    }

    fn broker(place: &Schema) -> Self::Broker {
        SqlxBroker::postgres_with(place.options.clone())
    }
}

/// A schema for the tables of one call of a loop.
pub struct Schema {
    options: PgConnectOptions,
    name: String,
}

impl server::Place for Schema {
    type Connection = PgConnection;

    async fn connect(&self) -> Result<PgConnection, Failed> {
        Ok(self.options.clone().disable_statement_logging().connect().await?)
    }

    async fn fill(&self, messages: u64, body: &[u8]) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        connection.execute(TABLE).await?;
        let fill = sqlx::query(FILL).bind(QUEUE).bind(body).bind(i64::try_from(messages)?);
        connection.execute(fill).await?;
        Ok(connection.close().await?)
    }

    async fn claim(connection: &mut PgConnection, rows: usize, token: i64) -> Result<Vec<(i64, Vec<u8>)>, Failed> {
        let claim = sqlx::query(CLAIM).bind(token).bind(QUEUE).bind(i64::try_from(rows)?);
        let rows: Vec<PgRow> = connection.fetch_all(claim).await?;
        rows.iter()
            .map(|row| {
                let _attempt: i32 = row.try_get(1)?;
                let _headers: Option<&[u8]> = row.try_get(3)?;
                Ok((row.try_get(0)?, row.try_get(2)?))
            })
            .collect()
    }

    async fn delete(connection: &mut PgConnection, ids: &[i64], token: i64) -> Result<(), Failed> {
        let delete = if let [id] = ids {
            sqlx::query("DELETE FROM jobs WHERE id = $1 AND token = $2").bind(*id)
        } else {
            sqlx::query("DELETE FROM jobs WHERE id = ANY ($1) AND token = $2").bind(ids.to_vec())
        };
        connection.execute(delete.bind(token)).await?;
        Ok(())
    }

    async fn insert(connection: &mut PgConnection, queue: &'static str, messages: Vec<Vec<u8>>) -> Result<(), Failed> {
        let insert = match <[Vec<u8>; 1]>::try_from(messages) {
            Ok([message]) => sqlx::query("INSERT INTO jobs (queue, payload) VALUES ($1, $2)")
                .bind(queue)
                .bind(message),
            Err(messages) => sqlx::query("INSERT INTO jobs (queue, payload) SELECT $1, unnest($2::bytea[])")
                .bind(queue)
                .bind(messages),
        };
        connection.execute(insert).await?;
        Ok(())
    }

    async fn begin_locked(connection: &mut PgConnection, rows: usize) -> Result<Vec<(i64, Vec<u8>)>, Failed> {
        connection.execute("BEGIN").await?;
        let lock = sqlx::query(LOCK).bind(QUEUE).bind(i64::try_from(rows)?);
        let rows: Vec<PgRow> = connection.fetch_all(lock).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(2)?))).collect()
    }

    async fn end_locked(connection: &mut PgConnection, ids: &[i64]) -> Result<(), Failed> {
        match ids {
            [] => {}
            [id] => {
                let delete = sqlx::query("DELETE FROM jobs WHERE id = $1").bind(*id);
                connection.execute(delete).await?;
            }
            ids => {
                let delete = sqlx::query("DELETE FROM jobs WHERE id = ANY ($1)").bind(ids.to_vec());
                connection.execute(delete).await?;
            }
        }
        connection.execute("COMMIT").await?;
        Ok(())
    }

    async fn lock_name(connection: &mut PgConnection, name: &str) -> Result<(), Failed> {
        let lock = sqlx::query("SELECT pg_try_advisory_lock(hashtextextended($1, 0))").bind(name);
        connection.fetch_one(lock).await?;
        Ok(())
    }

    async fn unlock_name(connection: &mut PgConnection, name: &str) -> Result<(), Failed> {
        let unlock = sqlx::query("SELECT pg_advisory_unlock(hashtextextended($1, 0))").bind(name);
        connection.fetch_one(unlock).await?;
        Ok(())
    }

    async fn deepen(&self, scheduled: u64, body: &[u8]) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        let fill = sqlx::query(DEEPEN)
            .bind(QUEUE)
            .bind(body)
            .bind(i64::try_from(scheduled)?);
        connection.execute(fill).await?;
        connection.execute("VACUUM ANALYZE ruststream_messages").await?;
        Ok(connection.close().await?)
    }

    async fn stored(&self, table: &'static str, queue: &'static str) -> Result<u64, Failed> {
        let mut connection = self.connect().await?;
        let count = format!("SELECT count(*) FROM {table} WHERE queue = $1");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .bind(queue)
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok(u64::try_from(count)?)
    }

    async fn remove(&self) -> Result<(), Failed> {
        let mut connection = self.connect().await?;
        let drop = format!("DROP SCHEMA {} CASCADE", self.name);
        connection.execute(AssertSqlSafe(drop)).await?;
        Ok(connection.close().await?)
    }
}
