//! Where transactions come from, and how they end.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::error::Failure;
use crate::server::{Base, Connects};

/// The most connections that are kept for the next transactions.
const IDLE: usize = 64;

/// A server whose transactions can be lent.
pub(crate) trait Begins: Connects {
    /// What handlers get.
    type Raw: Send + 'static;

    /// Makes a connection.
    fn open(&self) -> impl Future<Output = Result<Self::Raw, sqlx::Error>> + Send;

    fn begin(raw: &mut Self::Raw) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Deletes a row that is held under this token; false where it is not.
    fn ack(raw: &mut Self::Raw, id: i64, token: i64) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    fn commit(raw: &mut Self::Raw) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn rollback(raw: &mut Self::Raw) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

type Ending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Lends transactions of one server, whichever it is.
pub(crate) trait Lender: Any + Send + Sync {}

/// A transaction that a message may have, whichever its server.
pub(crate) trait Slot: Any + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    /// Deletes the row and commits; false where the row is someone else's, and nothing was committed.
    fn commit(&self, id: i64, token: i64) -> Ending<'_, Result<bool, Failure>>;

    /// Undoes what was written.
    fn rollback(&self) -> Ending<'_, ()>;

    /// How often the message was handed out.
    fn attempt(&self) -> u32;
}

/// The connections of one server that transactions begin on, apart from those that keep the queue going.
pub(crate) struct Bank<D: Begins> {
    base: Arc<Base<D>>,
    idle: Mutex<Vec<D::Raw>>,
}

/// A transaction that has begun.
pub(crate) struct Open<C> {
    pub(crate) connection: C,
    /// The queues that it stored messages in.
    pub(crate) published: Vec<Arc<str>>,
}

type Place<C> = Arc<tokio::sync::Mutex<Option<Open<C>>>>;

/// The transaction of one message.
pub(crate) struct BankSlot<D: Begins> {
    bank: Arc<Bank<D>>,
    place: Place<D::Raw>,
    attempt: u32,
}

impl<D: Begins> Bank<D> {
    pub(crate) fn new(base: Arc<Base<D>>) -> Arc<Self> {
        Arc::new(Self {
            base,
            idle: Mutex::new(Vec::new()),
        })
    }

    /// The place of a transaction, which has not begun.
    pub(super) fn slot(self: &Arc<Self>, attempt: u32) -> Arc<BankSlot<D>> {
        Arc::new(BankSlot {
            bank: Arc::clone(self),
            place: Place::default(),
            attempt,
        })
    }

    fn idle(&self) -> Option<D::Raw> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn begin(&self) -> Result<D::Raw, Failure> {
        let limit = self.base.settings.connect_timeout;
        // One that was idle may be dead: then a new one is made.
        while let Some(mut raw) = self.idle() {
            if let Ok(Ok(())) = timeout(limit, D::begin(&mut raw)).await {
                return Ok(raw);
            }
        }
        let beginning = async {
            let mut raw = self.base.dialect.open().await?;
            D::begin(&mut raw).await?;
            Ok(raw)
        };
        match timeout(limit, beginning).await {
            Ok(begun) => begun.map_err(|error| self.failure(error)),
            Err(_) => Err(self.too_slow(limit)),
        }
    }

    fn give_back(&self, raw: D::Raw) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(raw);
        }
    }

    fn failure(&self, error: sqlx::Error) -> Failure {
        let judged = self.base.dialect.judge(&error);
        Failure::new(judged.kind, format!("{}: {}", self.base.settings.label, judged.text)).with_cause(error)
    }

    fn too_slow(&self, limit: Duration) -> Failure {
        let label = &self.base.settings.label;
        Failure::new(
            ruststream::transport::ErrorKind::Timeout,
            format!("{label} did not answer within {limit:?}"),
        )
    }
}

impl<D: Begins> Lender for Bank<D> {}

impl<D: Begins> BankSlot<D> {
    /// Borrows the transaction, which begins with the first call.
    pub(super) async fn borrow(&self) -> Result<OwnedMutexGuard<Option<Open<D::Raw>>>, Failure> {
        let mut place = Arc::clone(&self.place).lock_owned().await;
        if place.is_none() {
            *place = Some(Open {
                connection: self.bank.begin().await?,
                published: Vec::new(),
            });
        }
        Ok(place)
    }

    /// Takes it from a handler that is through with it.
    fn take(&self) -> Result<Option<Open<D::Raw>>, Failure> {
        match self.place.try_lock() {
            Ok(mut place) => Ok(place.take()),
            Err(_) => Err(Failure::new(
                ruststream::transport::ErrorKind::Refused,
                "the handler has ended and its transaction is still borrowed: do not move a `Tx` into a task of its own",
            )),
        }
    }
}

impl<D: Begins> Slot for BankSlot<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn commit(&self, id: i64, token: i64) -> Ending<'_, Result<bool, Failure>> {
        Box::pin(async move {
            let Some(mut open) = self.take()? else {
                return Err(Failure::new(
                    ruststream::transport::ErrorKind::Unavailable,
                    "the transaction could not begin",
                ));
            };
            let limit = self.bank.base.settings.statement_timeout;
            let committing = async {
                let held = D::ack(&mut open.connection, id, token).await?;
                if held {
                    D::commit(&mut open.connection).await?;
                } else {
                    D::rollback(&mut open.connection).await?;
                }
                Ok(held)
            };
            // What failed is not given back: with its connection it is rolled back.
            match timeout(limit, committing).await {
                Ok(Ok(held)) => {
                    self.bank.give_back(open.connection);
                    for queue in open.published.iter().filter(|_| held) {
                        self.bank.base.news.tell(queue, 1);
                    }
                    Ok(held)
                }
                Ok(Err(error)) => Err(self.bank.failure(error)),
                Err(_) => Err(self.bank.too_slow(limit)),
            }
        })
    }

    fn rollback(&self) -> Ending<'_, ()> {
        Box::pin(async move {
            if let Ok(Some(mut open)) = self.take() {
                let limit = self.bank.base.settings.connect_timeout;
                if let Ok(Ok(())) = timeout(limit, D::rollback(&mut open.connection)).await {
                    self.bank.give_back(open.connection);
                }
            }
        })
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl<D: Begins> fmt::Debug for Bank<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bank").finish_non_exhaustive()
    }
}
