//! One connection of the outbox's own, made when it is needed and again when it broke.

use std::time::Duration;

use ruststream::transport::{ErrorKind, TransportError};
use sqlx::{ConnectOptions, Connection, Pool};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::OutboxDatabase;
use super::error::fault;

/// A connection apart from the pool, by the pool's options: what keeps the outbox going never waits for handlers.
pub(super) struct Link<DB: OutboxDatabase> {
    pool: Pool<DB>,
    open: Option<DB::Connection>,
}

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

impl<DB: OutboxDatabase> Link<DB> {
    pub(super) fn new(pool: Pool<DB>) -> Self {
        Self { pool, open: None }
    }

    /// The connection, out of its place: a call that is dropped half way takes it along, and with it a transaction that is open.
    pub(super) async fn take(&mut self) -> Result<DB::Connection, TransportError> {
        match self.open.take() {
            Some(connection) => Ok(connection),
            None => Self::connect(&self.pool).await,
        }
    }

    /// Puts the connection back after work on it. After an error it is let go of: the end of a transaction is never guessed at.
    pub(super) fn put<T>(
        &mut self,
        connection: DB::Connection,
        outcome: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, TransportError> {
        match outcome {
            Ok(Ok(value)) => {
                self.open = Some(connection);
                Ok(value)
            }
            Ok(Err(error)) => Err(fault(error)),
            Err(_) => Err(TransportError::new(
                ErrorKind::Timeout,
                "the outbox's database did not answer in time; another connection is made on the next call",
            )),
        }
    }

    async fn connect(pool: &Pool<DB>) -> Result<DB::Connection, TransportError> {
        let options = DB::options(pool);
        let connecting = async {
            let mut connection = options.connect().await?;
            DB::settle_in(&mut connection).await?;
            Ok(connection)
        };
        match timeout(CONNECT, connecting).await {
            Ok(connected) => connected.map_err(fault),
            Err(_) => Err(TransportError::new(
                ErrorKind::Timeout,
                format!("the outbox's database did not answer within {CONNECT:?}"),
            )),
        }
    }

    /// Closes the connection.
    pub(super) async fn close(&mut self) {
        if let Some(connection) = self.open.take() {
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}
