//! The settings of a `PostgreSQL` database.

use std::str::FromStr;
use std::time::Duration;

use ruststream::transport::{Broker, ErrorKind, TransportError};
use sqlx::postgres::PgConnectOptions;

use super::dialect::PostgresDialect;
use super::schema;
use crate::broker::SqlxBroker;
use crate::connection::SqlxConnection;
use crate::server::{self, Settings};
use crate::source::Inbox;

/// A database of `PostgreSQL`, made by [`SqlxBroker::postgres`].
#[derive(Clone)]
pub struct Postgres {
    options: Option<PgConnectOptions>,
    /// Why there are no options; told when connecting.
    invalid: Option<String>,
    settings: Settings,
    notifications: bool,
    prepared: bool,
    trigger: bool,
}

impl std::fmt::Debug for Postgres {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl SqlxBroker<Postgres> {
    /// A database of `PostgreSQL`, version 12 or newer, by its URL: `postgres://user:password@host:5432/database`. Parameters
    /// are those of sqlx, such as `options[search_path]=queues` for tables in a schema of their own.
    ///
    /// What is wrong with the URL is told by [`connect`](Broker::connect).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use ruststream::transport::Broker;
    /// use ruststream_sqlx::SqlxBroker;
    ///
    /// let broker = SqlxBroker::postgres("postgres://shop:secret@db.example.com/shop")
    ///     .poll_interval(Duration::from_secs(1))
    ///     .statement_timeout(Duration::from_secs(5));
    /// assert_eq!(broker.label(), "postgres db.example.com:5432/shop");
    /// ```
    pub fn postgres(url: impl AsRef<str>) -> Self {
        match PgConnectOptions::from_str(url.as_ref()) {
            Ok(options) => Self::postgres_with(options),
            Err(error) => Self::new(Postgres {
                options: None,
                // The error says what is wrong and does not repeat the URL.
                invalid: Some(format!(
                    "the URL of the database cannot be read ({error}): write postgres://user:…@host:5432/database"
                )),
                settings: Settings::new("postgres".to_owned()),
                notifications: true,
                prepared: true,
                trigger: false,
            }),
        }
    }

    /// A database of `PostgreSQL` by the options of sqlx: for certificates, sockets, and whatever a URL does not say.
    pub fn postgres_with(options: PgConnectOptions) -> Self {
        let database = options.get_database().unwrap_or(options.get_username());
        let label = match options.get_socket() {
            Some(socket) => format!("postgres {}/{database}", socket.display()),
            None => format!("postgres {}:{}/{database}", options.get_host(), options.get_port()),
        };
        Self::new(Postgres {
            options: Some(options),
            invalid: None,
            settings: Settings::new(label),
            notifications: true,
            prepared: true,
            trigger: false,
        })
    }

    /// Sets how often a waiting process looks for messages that no one told it of: 250 ms unless set, give or take a fifth.
    /// One statement looks for all its subscriptions.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.database.settings.poll_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets how many connections there may be in all. Any number unless set; fewer than ten are refused at the start, since nine keep the
    /// queues going however many handlers there are. The others are for the transactions of handlers and for locked rows, which
    /// wait for one that is free.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.database.settings.max_connections = Some(connections);
        self
    }

    /// Sets how many transactions the subscriptions by [row lock](Inbox::row_lock) may have open at once, each on a connection of
    /// its own. Sixteen unless set, and at least one; a claim waits for one that is free.
    pub fn lock_connections(mut self, connections: usize) -> Self {
        self.database.settings.lock_connections = connections.max(1);
        self
    }

    /// Sets how long making a connection may take. Five seconds unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.database.settings.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take over one statement before its connection is given up. Ten seconds unless set.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.database.settings.statement_timeout = timeout;
        self
    }

    /// Sets whether processes tell each other of new messages by `NOTIFY`. They do unless this is off; then the polls find them.
    /// To be switched off behind any pooler in transaction mode: what listens there are the pooler's connections.
    pub fn notifications(mut self, on: bool) -> Self {
        self.database.notifications = on;
        self
    }

    /// Sets whether statements are prepared once and kept. They are unless this is off: for a pooler that hands each
    /// transaction to another connection of the server, such as `PgBouncer` before 1.21 in transaction mode. Each statement then takes
    /// four round trips, and new messages of other processes are found by polling: such a pooler lets no one listen.
    pub fn prepared_statements(mut self, on: bool) -> Self {
        self.database.prepared = on;
        self
    }

    /// Sets whether the table gets a trigger that tells of rows which programs write by plain SQL. It does not unless this is on;
    /// then the polls find them. Publishes by this crate are told of in any case, and cost a little more beside the trigger.
    /// With `.migrate(false)` it has to be made by [`trigger_ddl`](Self::trigger_ddl).
    pub fn trigger(mut self, on: bool) -> Self {
        self.database.trigger = on;
        self
    }

    /// The statements that make the trigger, for people who run migrations of their own.
    pub fn trigger_ddl() -> &'static str {
        schema::trigger_ddl()
    }

    /// Sets whether the crate makes and migrates its tables. It does unless this is off: then they have to be there, as
    /// [`ddl`](Self::ddl) makes them.
    pub fn migrate(mut self, on: bool) -> Self {
        self.database.settings.migrate = on;
        self
    }

    /// The statements that make the tables, for people who run migrations of their own.
    pub fn ddl() -> String {
        schema::ddl()
    }
}

fn unusable(why: Option<&str>) -> TransportError {
    TransportError::new(
        ErrorKind::Invalid,
        why.unwrap_or("the URL of the database cannot be used"),
    )
}

impl Broker for SqlxBroker<Postgres> {
    type Connection = SqlxConnection;
    type Source = Inbox;

    fn label(&self) -> String {
        self.database.settings.label.clone()
    }

    fn source(&self, name: &str) -> Inbox {
        self.inbox(name)
    }

    fn check(&self) -> Result<(), TransportError> {
        match &self.database {
            Postgres {
                options: None, invalid, ..
            } => Err(unusable(invalid.as_deref())),
            Postgres { settings, .. } => settings.check(),
        }
    }

    async fn connect(&self) -> Result<SqlxConnection, TransportError> {
        let Postgres {
            options,
            invalid,
            settings,
            notifications,
            prepared,
            trigger,
        } = &self.database;
        let Some(options) = options else {
            return Err(unusable(invalid.as_deref()));
        };
        let dialect = PostgresDialect::new(options.clone(), *prepared, *notifications, *trigger);
        let engine = server::open(dialect, settings.clone()).await?;
        SqlxConnection::open(engine, self.max_payload, &self.tables).await
    }
}
