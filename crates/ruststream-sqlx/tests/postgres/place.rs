//! A schema of its own on the server that the tests share.

use std::str::FromStr;
use std::sync::OnceLock;

use ruststream::conformance::unique_name;
use ruststream::transport::Broker;
use ruststream_sqlx::{Postgres, SqlxBroker, SqlxConnection};
use servers::Kind;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

/// The kind of server.
pub(crate) const KIND: Kind = Kind::Postgres;

/// The database.
pub(crate) type Database = Postgres;

pub(crate) type PlaceBroker = SqlxBroker<Postgres>;

/// A schema of a database.
pub(crate) struct Place {
    url: String,
}

impl Place {
    /// How soon a message of another process is handed out: it is told of it.
    pub(crate) const WOKEN_WITHIN: std::time::Duration = std::time::Duration::from_millis(250);
    /// How often a connection whose subscriptions wait looks for rows of others.
    pub(crate) const POLLS_A_SECOND: std::ops::RangeInclusive<u64> = 3..=6;
    /// Whether such a look is a statement.
    pub(crate) const POLLS_ASK: bool = true;
    /// How many statements or transactions it takes to publish and claim one message.
    pub(crate) const STATEMENTS_A_MESSAGE: u64 = 2;

    pub(crate) async fn new() -> Self {
        static URL: OnceLock<String> = OnceLock::new();
        let url = URL.get_or_init(|| servers::shared(KIND).unwrap());
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

    /// The payloads of what is to be handed out or is in hand, with when their leases end.
    pub(crate) async fn lease_ends(&self) -> Vec<(Vec<u8>, std::time::Duration)> {
        let sql = "SELECT payload, (extract(epoch FROM greatest(lease_until, due_at)) * 1000000)::bigint \
                   FROM ruststream_messages WHERE state = 0";
        let rows = self.plain().await.fetch_all(sql).await.unwrap();
        let end = |micros: i64| std::time::Duration::from_micros(micros.unsigned_abs());
        rows.iter().map(|row| (row.get(0), end(row.get(1)))).collect()
    }

    /// The same place by way of another port.
    pub(crate) fn through(&self, port: u16) -> Self {
        let (_, rest) = self.url.split_once('@').unwrap();
        let (_, rest) = rest.split_once('/').unwrap();
        Self {
            url: format!("postgres://postgres@127.0.0.1:{port}/{rest}"),
        }
    }

    /// Brokers that can never connect here, with a word of what they are told.
    pub(crate) fn wrong_brokers(&self) -> Vec<(PlaceBroker, &'static str)> {
        let port = self.options().get_port();
        let url = |rest: &str| SqlxBroker::postgres(format!("postgres://{rest}"));
        vec![
            (url(&format!("postgres:secret@127.0.0.1:{port}/nowhere")), "nowhere"),
            (url(&format!("nobody:secret@127.0.0.1:{port}/postgres")), "nobody"),
            (url("postgres:secret@127.0.0.1:a/postgres"), "postgres://user:…@host"),
        ]
    }

    /// Runs several statements.
    pub(crate) async fn script(&self, sql: &str) {
        self.sql(sql).await;
    }

    pub(crate) fn application_name(&self) -> String {
        self.options().get_application_name().unwrap().to_owned()
    }

    pub(crate) fn port(&self) -> u16 {
        self.options().get_port()
    }

    /// Ends the connections that listen.
    pub(crate) async fn cut_listeners(&self) {
        let name = self.application_name();
        let cut = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = '{name}' AND query LIKE 'SELECT pg_notify%'"
        );
        self.sql(&cut).await;
    }

    /// A database of its own: a pooler does not pass the settings of a schema on.
    pub(crate) async fn in_a_database() -> Self {
        let place = Self::new().await;
        let name = unique_name().replace('-', "_");
        place.sql(&format!("CREATE DATABASE {name}")).await;
        let (server, _) = place.url.rsplit_once('/').unwrap();
        Self {
            url: format!("{server}/{name}?application_name={name}"),
        }
    }

    /// The URL of this database behind a pooler that knows one database for all.
    pub(crate) fn through_pooler(&self, port: u16) -> String {
        let database = self.options().get_database().unwrap().to_owned();
        format!("postgres://postgres@127.0.0.1:{port}/{database}")
    }

    /// How many transactions of the crate are open and do nothing.
    pub(crate) async fn open_transactions(&self) -> i64 {
        let name = self.application_name();
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND state LIKE 'idle in transaction%'"
        );
        self.number(&sql).await
    }

    /// The URL of this place, where functions of its schema come before those of the server.
    pub(crate) fn with_its_own_functions(&self) -> String {
        let (server, parameters) = self.url.split_once("search_path]=").unwrap();
        let (schema, rest) = parameters.split_once('&').unwrap();
        format!("{server}search_path]={schema},pg_catalog&{rest}")
    }
}
