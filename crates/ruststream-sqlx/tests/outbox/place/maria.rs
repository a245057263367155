//! A database of its own on the server that the tests share.

use std::str::FromStr;
use std::sync::OnceLock;

use ruststream::conformance::unique_name;
use servers::Kind;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

pub(crate) type Database = sqlx::MySql;
pub(crate) type Pool = sqlx::MySqlPool;

/// Whose transactions are lent to handlers.
pub(crate) type Lent = ruststream_sqlx::MySql;

pub(crate) struct Place {
    url: String,
}

impl Place {
    pub(crate) async fn new() -> Self {
        static URL: OnceLock<String> = OnceLock::new();
        let url = URL.get_or_init(|| servers::shared(Kind::Maria).unwrap());
        let database = unique_name().replace('-', "_");
        let mut connection = MySqlConnectOptions::from_str(url).unwrap().connect().await.unwrap();
        let create = format!("CREATE DATABASE {database}");
        connection.execute(AssertSqlSafe(create)).await.unwrap();
        let (server, _) = url.rsplit_once('/').unwrap();
        Self {
            url: format!("{server}/{database}"),
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
        ruststream_sqlx::SqlxBroker::mysql(&self.url)
    }

    pub(crate) fn port(&self) -> u16 {
        MySqlConnectOptions::from_str(&self.url).unwrap().get_port()
    }

    /// The same place by way of another port.
    pub(crate) fn through(&self, port: u16) -> Self {
        let (before, _) = self.url.rsplit_once(':').unwrap();
        let (_, database) = self.url.rsplit_once('/').unwrap();
        Self {
            url: format!("{before}:{port}/{database}"),
        }
    }

    #[allow(clippy::unused_async, reason = "as elsewhere")]
    pub(crate) async fn pool(&self) -> Pool {
        let options = MySqlConnectOptions::from_str(&self.url).unwrap();
        MySqlPoolOptions::new().max_connections(5).connect_lazy_with(options)
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut connection = MySqlConnectOptions::from_str(&self.url)
            .unwrap()
            .connect()
            .await
            .unwrap();
        let row = connection.fetch_one(AssertSqlSafe(sql.to_owned())).await.unwrap();
        row.try_get_unchecked(0).unwrap()
    }

    pub(crate) async fn sql(&self, sql: &str) {
        let mut connection = MySqlConnectOptions::from_str(&self.url)
            .unwrap()
            .connect()
            .await
            .unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
    }
}
