//! The outbox as layers: one app in three forms, over a stream of Redis with records in `PostgreSQL`.
//!
//! `none` is the app without an outbox. `hand` inserts a record before each publish, and fetches and marks it in the handler, by
//! bare sqlx. `crate` has the crate's two layers.

mod app;
mod hand;
mod rows;

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};

use ruststream_fred::RedisBroker;
use servers::{Instance, Kind, Settings};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// The statement whose round trip is measured.
const TRIP: &str = "SELECT 1";

/// Both servers.
pub struct OverRedis {
    redis: Instance,
    postgres: String,
    next: AtomicU64,
}

impl Transport for OverRedis {
    const NAME: &'static str = "outbox";
    const BOUND: Bound = Bound::Database;
    const CLIENTS: &'static [&'static str] = &["sqlx", "fred"];

    fn scenarios() -> Vec<Scenario<Self>> {
        rows::scenarios()
    }

    async fn open() -> Result<Self, Failed> {
        let postgres = tokio::task::spawn_blocking(|| servers::shared(Kind::Postgres)).await??;
        Ok(Self {
            redis: Instance::start(Kind::Redis, Settings::default())?,
            postgres,
            next: AtomicU64::new(0),
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let mut connection = PgConnectOptions::from_str(&self.postgres)?.connect().await?;
        let version: String = sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut connection)
            .await?;
        let commit: String = sqlx::query_scalar("SHOW synchronous_commit")
            .fetch_one(&mut connection)
            .await?;
        let trip = round_trip(&mut connection, |connection| {
            Box::pin(async move {
                connection.fetch_one(sqlx::query(TRIP)).await?;
                Ok(())
            })
        })
        .await?;
        connection.close().await?;
        Ok(Some(Server {
            version: format!("PostgreSQL {version}, and Redis without persistence"),
            settings: BTreeMap::from([("synchronous_commit".to_owned(), commit)]),
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

/// A schema and a stream that no other call of a loop has used.
struct Place {
    pool: PgPool,
    schema: String,
    stream: &'static str,
    redis: String,
}

impl OverRedis {
    async fn place(&self) -> Result<Place, Failed> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let schema = format!("bench_outbox_{}_{number}", std::process::id());
        let mut connection = PgConnectOptions::from_str(&self.postgres)?.connect().await?;
        connection
            .execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}")))
            .await?;
        // What earlier loops left behind is cleaned up here, and not while this one runs.
        connection.execute("CHECKPOINT").await?;
        connection.close().await?;
        let mark = if self.postgres.contains('?') { '&' } else { '?' };
        let options = PgConnectOptions::from_str(&format!("{}{mark}options[search_path]={schema}", self.postgres))?;
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .test_before_acquire(false)
            .connect_with(options.disable_statement_logging())
            .await?;
        pool.execute(hand::TABLE).await?;
        Ok(Place {
            pool,
            schema,
            // Names of destinations live as long as the program.
            stream: format!("orders-{number}").leak(),
            redis: self.redis.url(),
        })
    }
}

impl Place {
    fn broker(&self) -> RedisBroker {
        RedisBroker::standalone(&self.redis).group("bench")
    }

    async fn remove(self) -> Result<(), Failed> {
        self.pool
            .execute(AssertSqlSafe(format!("DROP SCHEMA {} CASCADE", self.schema)))
            .await?;
        self.pool.close().await;
        Ok(())
    }

    /// How many rows a table has in this state.
    async fn count(&self, table: &'static str, condition: &'static str) -> Result<u64, Failed> {
        let text = format!("SELECT count(*) FROM {table} WHERE {condition}");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&self.pool).await?;
        Ok(u64::try_from(count)?)
    }
}
