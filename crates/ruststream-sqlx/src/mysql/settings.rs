//! The settings of a database of `MariaDB` or MySQL.

use std::str::FromStr;
use std::time::Duration;

use ruststream::transport::{Broker, ErrorKind, TransportError};
use sqlx::mysql::MySqlConnectOptions;

use super::dialect::MySqlDialect;
use super::schema;
use crate::broker::SqlxBroker;
use crate::connection::SqlxConnection;
use crate::server::{self, Settings};
use crate::source::Inbox;

/// A database of `MariaDB` or MySQL, made by [`SqlxBroker::mysql`].
#[derive(Clone)]
pub struct MySql {
    options: Option<MySqlConnectOptions>,
    /// Why there are no options; told when connecting.
    invalid: Option<String>,
    settings: Settings,
}

impl std::fmt::Debug for MySql {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySql")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl SqlxBroker<MySql> {
    /// A database of `MariaDB`, version 10.6 or newer, or of MySQL, version 8.0.13 or newer, by its URL:
    /// `mysql://user:password@host:3306/database`. What only MySQL does is not tested: the tests run on `MariaDB` 10.11.
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
    /// let broker = SqlxBroker::mysql("mysql://shop:secret@db.example.com/shop")
    ///     .poll_interval(Duration::from_secs(1))
    ///     .statement_timeout(Duration::from_secs(5));
    /// assert_eq!(broker.label(), "mysql db.example.com:3306/shop");
    /// ```
    pub fn mysql(url: impl AsRef<str>) -> Self {
        match MySqlConnectOptions::from_str(url.as_ref()) {
            Ok(options) => Self::mysql_with(options),
            Err(error) => Self::new(MySql {
                options: None,
                // The error says what is wrong and does not repeat the URL.
                invalid: Some(format!(
                    "the URL of the database cannot be read ({error}): write mysql://user:…@host:3306/database"
                )),
                settings: Settings::new("mysql".to_owned()),
            }),
        }
    }

    /// A database of `MariaDB` or MySQL by the options of sqlx: for certificates, sockets, and whatever a URL does not say.
    pub fn mysql_with(options: MySqlConnectOptions) -> Self {
        let database = options.get_database();
        let invalid = database
            .is_none()
            .then(|| "the URL of the database names no database: write mysql://user:…@host:3306/database".to_owned());
        let database = database.unwrap_or_default();
        let label = match options.get_socket() {
            Some(socket) => format!("mysql {}/{database}", socket.display()),
            None => format!("mysql {}:{}/{database}", options.get_host(), options.get_port()),
        };
        Self::new(MySql {
            options: invalid.is_none().then_some(options),
            invalid,
            settings: Settings::new(label),
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

impl Broker for SqlxBroker<MySql> {
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
            MySql {
                options: None, invalid, ..
            } => Err(TransportError::new(
                ErrorKind::Invalid,
                invalid.clone().unwrap_or_default(),
            )),
            MySql { settings, .. } => settings.check(),
        }
    }

    async fn connect(&self) -> Result<SqlxConnection, TransportError> {
        let MySql {
            options,
            invalid,
            settings,
        } = &self.database;
        let Some(options) = options else {
            return Err(TransportError::new(
                ErrorKind::Invalid,
                invalid.clone().unwrap_or_default(),
            ));
        };
        let dialect = MySqlDialect::new(options.clone());
        let engine = server::open(dialect, settings.clone()).await?;
        SqlxConnection::open(engine, self.max_payload, &self.tables).await
    }
}
