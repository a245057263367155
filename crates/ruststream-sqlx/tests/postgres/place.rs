//! A schema of its own on the server that the tests share.

use std::str::FromStr;
use std::sync::OnceLock;

use ruststream::conformance::unique_name;
use ruststream::transport::Broker;
use ruststream_sqlx::{Postgres, SqlxBroker, SqlxConnection};
use servers::Kind;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

pub(crate) type PlaceBroker = SqlxBroker<Postgres>;

/// A schema of a database.
pub(crate) struct Place {
    url: String,
}

impl Place {
    /// How often a connection whose subscriptions wait looks for rows of others.
    pub(crate) const POLLS_A_SECOND: std::ops::RangeInclusive<u64> = 3..=6;
    /// Whether such a look is a statement.
    pub(crate) const POLLS_ASK: bool = true;
    /// How many statements or transactions it takes to publish and claim one message.
    pub(crate) const STATEMENTS_A_MESSAGE: u64 = 2;

    pub(crate) async fn new() -> Self {
        static URL: OnceLock<String> = OnceLock::new();
        let url = URL.get_or_init(|| servers::shared(Kind::Postgres).unwrap());
        Self::on(url).await
    }

    /// A schema on this server.
    pub(crate) async fn on(url: &str) -> Self {
        let schema = unique_name().replace('-', "_");
        let mut connection = PgConnectOptions::from_str(url).unwrap().connect().await.unwrap();
        let create = format!("CREATE SCHEMA {schema}");
        connection.execute(AssertSqlSafe(create)).await.unwrap();
        let mark = if url.contains('?') { '&' } else { '?' };
        Self {
            url: format!("{url}{mark}options[search_path]={schema}&application_name={schema}"),
        }
    }

    pub(crate) fn broker(&self) -> PlaceBroker {
        SqlxBroker::postgres(&self.url)
    }

    /// One whose processes do not tell each other of new messages.
    pub(crate) fn broker_that_hears_nothing(&self) -> PlaceBroker {
        self.broker().notifications(false)
    }

    pub(crate) async fn connect(&self) -> SqlxConnection {
        self.broker().connect().await.unwrap()
    }

    fn options(&self) -> PgConnectOptions {
        PgConnectOptions::from_str(&self.url).unwrap()
    }

    /// A plain connection, as any other program has it.
    pub(crate) async fn plain(&self) -> PgConnection {
        self.options().application_name("plain").connect().await.unwrap()
    }

    pub(crate) async fn sql(&self, sql: &str) {
        self.plain().await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT q.n::bigint FROM ({sql}) AS q (n)");
        let row = self.plain().await.fetch_one(AssertSqlSafe(sql)).await.unwrap();
        row.get(0)
    }

    /// What another process needs to know to find it.
    pub(crate) fn describe(&self) -> String {
        self.url.clone()
    }

    /// The broker of a place that another process described.
    pub(crate) fn described(description: &str) -> PlaceBroker {
        SqlxBroker::postgres(description)
    }

    /// Bytes as they are written in a statement.
    pub(crate) fn bytes(hex: &str) -> String {
        format!("'\\x{hex}'::bytea")
    }

    /// Sets the id of the next row.
    pub(crate) async fn next_id(&self, id: i64) {
        self.sql(&format!(
            "ALTER TABLE ruststream_messages ALTER COLUMN id RESTART WITH {id}"
        ))
        .await;
    }

    /// Ends all connections of the crate to this schema.
    pub(crate) async fn cut_links(&self) -> bool {
        let name = self.options().get_application_name().unwrap().to_owned();
        let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'");
        self.sql(&cut).await;
        true
    }
}
