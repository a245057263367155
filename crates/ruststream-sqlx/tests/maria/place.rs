//! A database of its own on the server that the tests share.

use std::str::FromStr;
use std::sync::OnceLock;

use ruststream::conformance::unique_name;
use ruststream::transport::Broker;
use ruststream_sqlx::{MySql, SqlxBroker, SqlxConnection};
use servers::Kind;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

/// The kind of server.
pub(crate) const KIND: Kind = Kind::Maria;

/// The database.
pub(crate) type Database = MySql;

pub(crate) type PlaceBroker = SqlxBroker<MySql>;

/// A database.
pub(crate) struct Place {
    options: MySqlConnectOptions,
    url: String,
}

impl Place {
    /// Tables of the user's own.
    pub(crate) const TABLES: [&str; 3] = [
        "CREATE TABLE jobs (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, kind VARCHAR(100) NOT NULL, body TEXT, customer VARCHAR(100), \
         rank_of_it INT NOT NULL DEFAULT 0, attempts INT NOT NULL DEFAULT 0, due DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), \
         held_until DATETIME(6), holder BIGINT, dead DATETIME(6), why TEXT)",
        "CREATE INDEX jobs_due ON jobs (kind, due)",
        "CREATE TABLE notes (name VARCHAR(100) PRIMARY KEY, attempts INT NOT NULL, due DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), \
         held_until DATETIME(6) NOT NULL DEFAULT '1970-01-01', holder BIGINT NOT NULL DEFAULT 0, done DATETIME(6))",
    ];
    /// Gives a column another type.
    pub(crate) const WRONG_COLUMN: &str = "ALTER TABLE jobs MODIFY held_until TEXT";
    /// Refuses receipts when their transaction is about to commit.
    pub(crate) const NO_RECEIPTS: [&str; 1] =
        ["ALTER TABLE ruststream_messages ADD CONSTRAINT no_receipts CHECK (queue <> 'receipts')"];
    /// The version that the tables are migrated to.
    pub(crate) const VERSION: i64 = 3;

    /// Lets all leases end.
    pub(crate) const END_LEASES: &str = "UPDATE ruststream_messages SET lease_until = '1970-01-01'";

    /// How soon a message of another process is handed out: the polls find it, a fifth more than 250 ms apart at most.
    pub(crate) const WOKEN_WITHIN: std::time::Duration = std::time::Duration::from_millis(450);
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

    /// A database on this server.
    pub(crate) async fn on(url: &str) -> Self {
        let database = unique_name().replace('-', "_");
        let mut connection = MySqlConnectOptions::from_str(url).unwrap().connect().await.unwrap();
        let create = format!("CREATE DATABASE {database}");
        connection.execute(AssertSqlSafe(create)).await.unwrap();
        let (server, _) = url.rsplit_once('/').unwrap();
        let url = format!("{server}/{database}");
        Self {
            options: MySqlConnectOptions::from_str(&url).unwrap(),
            url,
        }
    }

    pub(crate) fn broker(&self) -> PlaceBroker {
        Self::described(&self.url)
    }

    /// One whose processes do not tell each other of new messages: they never do here.
    pub(crate) fn broker_that_hears_nothing(&self) -> PlaceBroker {
        self.broker()
    }

    pub(crate) async fn connect(&self) -> SqlxConnection {
        self.broker().connect().await.unwrap()
    }

    /// A plain connection, as any other program has it.
    pub(crate) async fn plain(&self) -> MySqlConnection {
        self.options.connect().await.unwrap()
    }

    pub(crate) async fn sql(&self, sql: &str) {
        self.plain().await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let row = self.plain().await.fetch_one(sql).await.unwrap();
        row.try_get_unchecked(0).unwrap()
    }

    /// What another process needs to know to find it.
    pub(crate) fn describe(&self) -> String {
        self.url.clone()
    }

    /// The broker of a place that another process described.
    pub(crate) fn described(description: &str) -> PlaceBroker {
        SqlxBroker::mysql(description)
    }

    /// Bytes as they are written in a statement.
    pub(crate) fn bytes(hex: &str) -> String {
        format!("x'{hex}'")
    }

    /// Sets the id of the next row.
    pub(crate) async fn next_id(&self, id: i64) {
        self.sql(&format!("ALTER TABLE ruststream_messages AUTO_INCREMENT = {id}"))
            .await;
    }

    /// Ends all connections to this database.
    pub(crate) async fn cut_links(&self) -> bool {
        let database = self.options.get_database().unwrap();
        let mut connection = self.options.clone().database("").connect().await.unwrap();
        let links = format!("SELECT id FROM information_schema.processlist WHERE db = '{database}'");
        for row in connection.fetch_all(AssertSqlSafe(links)).await.unwrap() {
            let id: i64 = row.try_get_unchecked(0).unwrap();
            // One that has just gone by itself needs no end.
            let _ = connection.execute(AssertSqlSafe(format!("KILL {id}"))).await;
        }
        true
    }

    /// The payloads of what is to be handed out or is in hand, with when their leases end.
    pub(crate) async fn lease_ends(&self) -> Vec<(Vec<u8>, std::time::Duration)> {
        let sql = "SELECT payload, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', GREATEST(lease_until, due_at)) \
                   FROM ruststream_messages WHERE state = 0";
        let rows = self.plain().await.fetch_all(sql).await.unwrap();
        let end = |micros: i64| std::time::Duration::from_micros(micros.unsigned_abs());
        rows.iter()
            .map(|row| (row.get_unchecked(0), end(row.get_unchecked(1))))
            .collect()
    }

    /// The same place by way of another port.
    pub(crate) fn through(&self, port: u16) -> Self {
        let database = self.options.get_database().unwrap();
        let url = format!("mysql://ruststream:ruststream@127.0.0.1:{port}/{database}");
        Self {
            options: MySqlConnectOptions::from_str(&url).unwrap(),
            url,
        }
    }

    /// Brokers that can never connect here, with a word of what they are told.
    pub(crate) fn wrong_brokers(&self) -> Vec<(PlaceBroker, &'static str)> {
        let port = self.options.get_port();
        let url = |rest: &str| SqlxBroker::mysql(format!("mysql://{rest}"));
        vec![
            (
                url(&format!("ruststream:ruststream@127.0.0.1:{port}/nowhere")),
                "nowhere",
            ),
            (
                url(&format!("ruststream:secret@127.0.0.1:{port}/ruststream")),
                "password",
            ),
            (url(&format!("ruststream:secret@127.0.0.1:{port}")), "names no database"),
            (url("ruststream:secret@127.0.0.1:a/ruststream"), "mysql://user:…@host"),
        ]
    }

    /// Runs several statements.
    pub(crate) async fn script(&self, sql: &str) {
        let script = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        self.plain().await.execute(script).await.unwrap();
    }

    /// How many transactions of the crate are open and do nothing.
    pub(crate) async fn open_transactions(&self) -> i64 {
        let database = self.options.get_database().unwrap();
        let sql = format!(
            "SELECT count(*) FROM information_schema.innodb_trx AS t \
             JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id \
             WHERE p.db = '{database}' AND p.command = 'Sleep'"
        );
        self.number(&sql).await
    }
}
