//! Where transactions come from, and how they end.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::timeout;

use crate::error::Failure;
use crate::operation::NewRow;
use crate::server::{Base, Connects};
use crate::terms::{Isolation, Terms};

/// The most connections that are kept for the next transactions.
const IDLE: usize = 64;

/// A server whose transactions can be lent.
pub(crate) trait Begins: Connects {
    /// What handlers get.
    type Raw: Send + 'static;

    /// Makes a connection.
    fn open(&self) -> impl Future<Output = Result<Self::Raw, sqlx::Error>> + Send;

    fn begin(raw: &mut Self::Raw, isolation: Option<Isolation>)
    -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Deletes a row that is held under this token, or keeps it as done for so many milliseconds; false where it is not held.
    fn ack(
        raw: &mut Self::Raw,
        id: i64,
        token: i64,
        keep: Option<i64>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Locks a row that is held under this token; false where it is not.
    fn lock(raw: &mut Self::Raw, id: i64, token: i64) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Stores rows, in order.
    fn store(raw: &mut Self::Raw, rows: &[NewRow]) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn commit(raw: &mut Self::Raw) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn rollback(raw: &mut Self::Raw) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

type Ending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Lends transactions of one server, whichever it is.
pub(crate) trait Lender: Any + Send + Sync {}

/// A transaction that a message may have, whichever its server.
pub(crate) trait Slot: Any + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    /// Deletes the row, stores replies and commits; false where the row is someone else's, and nothing was committed.
    fn commit(&self, id: i64, token: i64, replies: Option<Arc<[NewRow]>>) -> Ending<'_, Result<bool, Failure>>;

    /// Undoes what was written.
    fn rollback(&self) -> Ending<'_, ()>;

    /// Undoes what was written, in a task of its own: the message goes on without it.
    fn abandon(self: Arc<Self>);
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
    _place: OwnedSemaphorePermit,
}

type Place<C> = Arc<tokio::sync::Mutex<Option<Open<C>>>>;

/// The transaction of one message.
pub(crate) struct BankSlot<D: Begins> {
    bank: Arc<Bank<D>>,
    place: Place<D::Raw>,
    /// Id and token.
    row: (i64, i64),
    terms: Arc<Terms>,
}

impl<D: Begins> Bank<D> {
    pub(crate) fn new(base: Arc<Base<D>>) -> Arc<Self> {
        Arc::new(Self {
            base,
            idle: Mutex::new(Vec::new()),
        })
    }

    /// The place of a transaction, which has not begun.
    pub(super) fn slot(self: &Arc<Self>, row: (i64, i64), terms: &Arc<Terms>) -> Arc<BankSlot<D>> {
        Arc::new(BankSlot {
            bank: Arc::clone(self),
            place: Place::default(),
            row,
            terms: Arc::clone(terms),
        })
    }

    fn idle(&self) -> Option<D::Raw> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn begin(&self, (id, token): (i64, i64), terms: &Terms) -> Result<D::Raw, Failure> {
        let limit = self.base.settings.connect_timeout;
        // One that was idle may be dead: then a new one is made.
        while let Some(mut raw) = self.idle() {
            if let Ok(Ok(())) = timeout(limit, D::begin(&mut raw, terms.isolation)).await {
                return self.locked(raw, id, token, terms).await;
            }
        }
        let beginning = async {
            let mut raw = self.base.dialect.open().await?;
            D::begin(&mut raw, terms.isolation).await?;
            Ok(raw)
        };
        match timeout(limit, beginning).await {
            Ok(Ok(raw)) => self.locked(raw, id, token, terms).await,
            Ok(Err(error)) => Err(self.failure(error)),
            Err(_) => Err(self.too_slow(limit)),
        }
    }

    /// Where the message is to be claimed in its transaction, its row is the first thing that is locked there.
    async fn locked(&self, mut raw: D::Raw, id: i64, token: i64, terms: &Terms) -> Result<D::Raw, Failure> {
        if !terms.transactional {
            return Ok(raw);
        }
        let limit = self.base.settings.statement_timeout;
        match timeout(limit, D::lock(&mut raw, id, token)).await {
            Ok(Ok(true)) => Ok(raw),
            Ok(Ok(false)) => Err(Failure::new(
                ruststream::transport::ErrorKind::Unavailable,
                "the message was given to someone else before its transaction began",
            )),
            Ok(Err(error)) => Err(self.failure(error)),
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
            let base = &self.bank.base;
            let limit = base.settings.connect_timeout;
            let waiting = Arc::clone(&base.for_handlers).acquire_owned();
            let Ok(Ok(of_all)) = timeout(limit, waiting).await else {
                return Err(Failure::new(
                    ruststream::transport::ErrorKind::Busy,
                    format!(
                        "no connection for the transaction of a handler was free within {limit:?}: there are {} in all; raise \
                         `.max_connections(..)`, or have fewer workers",
                        base.settings.max_connections.unwrap_or_default()
                    ),
                ));
            };
            *place = Some(Open {
                _place: of_all,
                connection: self.bank.begin(self.row, &self.terms).await?,
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

    fn commit(&self, id: i64, token: i64, replies: Option<Arc<[NewRow]>>) -> Ending<'_, Result<bool, Failure>> {
        Box::pin(async move {
            let Some(mut open) = self.take()? else {
                return Err(Failure::new(
                    ruststream::transport::ErrorKind::Unavailable,
                    "the transaction could not begin",
                ));
            };
            let limit = self.bank.base.settings.statement_timeout;
            let committing = async {
                let held = D::ack(&mut open.connection, id, token, self.terms.keep).await?;
                if held {
                    if let Some(replies) = replies.filter(|replies| !replies.is_empty()) {
                        D::store(&mut open.connection, &replies).await?;
                        open.published.extend(replies.iter().map(|row| Arc::clone(&row.queue)));
                    }
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

    fn abandon(self: Arc<Self>) {
        // Without a runtime, or where it ends first, the connection is dropped, and its server rolls back.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { self.rollback().await });
        }
    }
}

impl<D: Begins> fmt::Debug for Bank<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bank").finish_non_exhaustive()
    }
}
