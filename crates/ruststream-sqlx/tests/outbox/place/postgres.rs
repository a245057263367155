//! A schema of its own on the server that the tests share.

use std::str::FromStr;
use std::sync::OnceLock;

use ruststream::conformance::unique_name;
use servers::Kind;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

pub(crate) type Database = sqlx::Postgres;
pub(crate) type Pool = sqlx::PgPool;

/// Whose transactions are lent to handlers.
pub(crate) type Lent = ruststream_sqlx::Postgres;

pub(crate) struct Place {
    url: String,
}

impl Place {
    pub(crate) async fn new() -> Self {
        static URL: OnceLock<String> = OnceLock::new();
        let url = URL.get_or_init(|| servers::shared(Kind::Postgres).unwrap());
        let schema = unique_name().replace('-', "_");
        let mut connection = PgConnectOptions::from_str(url).unwrap().connect().await.unwrap();
        let create = format!("CREATE SCHEMA {schema}");
        connection.execute(AssertSqlSafe(create)).await.unwrap();
        Self {
            url: format!("{url}?options[search_path]={schema}&application_name={schema}"),
        }
    }

    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A broker whose queues are in the same place.
    pub(crate) fn inbox(&self) -> ruststream_sqlx::SqlxBroker<Lent> {
        ruststream_sqlx::SqlxBroker::postgres(&self.url)
    }

    pub(crate) fn port(&self) -> u16 {
        PgConnectOptions::from_str(&self.url).unwrap().get_port()
    }

    /// The same place by way of another port.
    pub(crate) fn through(&self, port: u16) -> Self {
        let (_, rest) = self.url.split_once('@').unwrap();
        let (_, rest) = rest.split_once('/').unwrap();
        Self {
            url: format!("postgres://postgres@127.0.0.1:{port}/{rest}"),
        }
    }

    #[allow(clippy::unused_async, reason = "as elsewhere")]
    pub(crate) async fn pool(&self) -> Pool {
        let options = PgConnectOptions::from_str(&self.url).unwrap();
        PgPoolOptions::new().max_connections(5).connect_lazy_with(options)
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT q.n::bigint FROM ({sql}) AS q (n)");
        let mut connection = PgConnectOptions::from_str(&self.url).unwrap().connect().await.unwrap();
        connection.fetch_one(AssertSqlSafe(sql)).await.unwrap().get(0)
    }

    pub(crate) async fn sql(&self, sql: &str) {
        let mut connection = PgConnectOptions::from_str(&self.url).unwrap().connect().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
    }
}
