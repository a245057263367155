//! Locks of a server: transactions that have rows locked, and locks by name.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Duration;

use ruststream::transport::ErrorKind;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

use super::{Base, Connects, Dialect, Ping, SettleRows};
use crate::engine::Counters;
use crate::error::Failure;
use crate::guard::{AdvisoryGuard, Boxed, Guards, Locked, Place, RowGuard, ToLock};
use crate::operation::Part;

/// A server that locks rows and names. A connection that has locked rows is within a transaction until it commits.
pub(crate) trait Locks: Connects {
    /// Begins a transaction and locks rows, by ids and tokens; answers which were found and not locked by others.
    fn lock_rows(
        link: &mut Self::Connection,
        rows: &[(i64, i64)],
    ) -> impl Future<Output = Result<Vec<i64>, sqlx::Error>> + Send;

    /// Commits, and begins again with these rows locked; first their leases are extended, if a lease is given.
    fn go_on(
        link: &mut Self::Connection,
        rows: &[(i64, i64)],
        lease: Option<i64>,
    ) -> impl Future<Output = Result<Vec<i64>, sqlx::Error>> + Send;

    /// Commits, and that is all.
    fn end(link: &mut Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Takes locks by name that no one has, for as long as the connection lasts; answers which.
    fn try_lock(
        link: &mut Self::Connection,
        names: &[String],
    ) -> impl Future<Output = Result<Vec<bool>, sqlx::Error>> + Send;

    /// Gives locks back.
    fn unlock(link: &mut Self::Connection, names: &[String]) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// The connections of one server that hold locks, apart from all others.
pub(super) struct ServerGuards<D: Dialect> {
    shared: Arc<Shared<D>>,
}

struct Shared<D: Dialect> {
    base: Arc<Base<D>>,
    idle: Lock<Vec<D::Connection>>,
    /// How many transactions may be open.
    places: Arc<Semaphore>,
}

impl<D: Dialect> ServerGuards<D> {
    pub(super) fn new(base: Arc<Base<D>>) -> Self {
        let places = Arc::new(Semaphore::new(base.settings.lock_connections));
        Self {
            shared: Arc::new(Shared {
                base,
                idle: Lock::default(),
                places,
            }),
        }
    }
}

impl<D: Dialect> Shared<D> {
    async fn connection(&self) -> Result<D::Connection, Failure> {
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(idle);
        }
        Counters::count(&self.base.counters.opened);
        let limit = self.base.settings.connect_timeout;
        self.within(limit, self.base.dialect.connect()).await
    }

    fn give_back(&self, connection: D::Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }

    fn statement(&self) -> Duration {
        self.base.settings.statement_timeout
    }

    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Failure> {
        let label = &self.base.settings.label;
        match timeout(limit, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                let judged = self.base.dialect.judge(&error);
                Err(Failure::lost(judged.kind, format!("{label}: {}", judged.text)).with_cause(error))
            }
            Err(_) => Err(Failure::lost(
                ErrorKind::Timeout,
                format!("{label} did not answer within {limit:?}"),
            )),
        }
    }
}

impl<D: Dialect> Guards for ServerGuards<D> {
    fn check_rows(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn place(&self) -> Boxed<'_, Result<Place, Failure>> {
        Box::pin(async move {
            let closed = |_| Failure::closed(&self.shared.base.settings.label);
            let ours = Arc::clone(&self.shared.places).acquire_owned().await.map_err(closed)?;
            let of_all = Arc::clone(&self.shared.base.for_handlers).acquire_owned();
            Ok(Place([ours, of_all.await.map_err(closed)?]))
        })
    }

    fn lock_rows(&self, place: Place, to_lock: ToLock) -> Boxed<'_, Result<Locked, Failure>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            let ToLock { queue, rows, lease } = to_lock;
            let mut tries = 0;
            let (connection, ids) = loop {
                let mut connection = shared.connection().await?;
                Counters::count(&shared.base.counters.transactions);
                let locking = D::lock_rows(&mut connection, &rows);
                match shared.within(shared.statement(), locking).await {
                    Ok(ids) => break (connection, ids),
                    // Those that were idle may be dead.
                    Err(_) if tries < 1 => {
                        tries += 1;
                        shared.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    }
                    Err(failure) => return Err(failure),
                }
            };
            let state = Mutex::new(Some(Open {
                connection,
                leased: Instant::now(),
                _place: place,
            }));
            let guard = Arc::new(ServerRows {
                alive: AtomicBool::new(true),
                lease,
                queue,
                state,
                shared,
            });
            Ok(Locked { guard, ids })
        })
    }

    fn advisory(&self) -> Arc<dyn AdvisoryGuard> {
        Arc::new(ServerNames {
            shared: Arc::clone(&self.shared),
            connection: Mutex::new(None),
            taken: AtomicBool::new(false),
        })
    }
}

/// Rows that are locked on a server.
struct ServerRows<D: Dialect> {
    shared: Arc<Shared<D>>,
    queue: Arc<str>,
    lease: i64,
    alive: AtomicBool,
    state: Mutex<Option<Open<D::Connection>>>,
}

struct Open<C> {
    connection: C,
    /// When their leases began: they bridge the moments between two transactions.
    leased: Instant,
    _place: Place,
}

impl<D: Dialect> ServerRows<D> {
    async fn run(
        &self,
        open: &mut Open<D::Connection>,
        parts: Vec<Part>,
        left: &[(i64, i64)],
    ) -> Result<usize, Failure> {
        let Shared { base, .. } = &*self.shared;
        let mut stale = 0;
        let mut again = 0;
        for rows in SettleRows::sort(parts) {
            let done = base.dialect.answer(&mut open.connection, &rows);
            let done = self.shared.within(self.shared.statement(), done).await?;
            let done = usize::try_from(done).unwrap_or(usize::MAX);
            stale += rows.len().saturating_sub(done);
            if rows.come_again() {
                again += done;
            }
        }
        let limit = self.shared.statement();
        if left.is_empty() {
            self.shared.within(limit, D::end(&mut open.connection)).await?;
        } else {
            let half = Duration::from_millis(self.lease.max(2).unsigned_abs() / 2);
            let extend = (open.leased.elapsed() > half).then_some(self.lease);
            if extend.is_some() {
                open.leased = Instant::now();
            }
            let going_on = D::go_on(&mut open.connection, left, extend);
            self.shared.within(limit, going_on).await?;
        }
        if again > 0 {
            base.news.tell(&self.queue, again);
        }
        Ok(stale)
    }
}

impl<D: Dialect> RowGuard for ServerRows<D> {
    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    fn settle(&self, parts: Vec<Part>, left: Vec<(i64, i64)>) -> Boxed<'_, Result<usize, Failure>> {
        Box::pin(async move {
            let mut place = self.state.lock().await;
            // Taken out: what is dropped half way is rolled back with its connection.
            let Some(mut open) = place.take() else {
                return Err(Failure::closed(&self.shared.base.settings.label));
            };
            match self.run(&mut open, parts, &left).await {
                Ok(stale) if left.is_empty() => {
                    self.alive.store(false, Ordering::Release);
                    self.shared.give_back(open.connection);
                    Ok(stale)
                }
                Ok(stale) => {
                    *place = Some(open);
                    Ok(stale)
                }
                Err(failure) => {
                    self.alive.store(false, Ordering::Release);
                    Err(failure)
                }
            }
        })
    }

    fn look(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            // Who settles just now finds out by itself.
            let Ok(mut state) = self.state.try_lock() else { return };
            let Some(mut open) = state.take() else { return };
            let ping = self.shared.base.dialect.answer(&mut open.connection, &Ping);
            match self
                .shared
                .within(self.shared.base.settings.connect_timeout, ping)
                .await
            {
                Ok(()) => *state = Some(open),
                Err(_) => self.alive.store(false, Ordering::Release),
            }
        })
    }
}

impl<D: Dialect> fmt::Debug for ServerRows<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRows")
            .field("alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}

/// Locks by name, all on one connection.
struct ServerNames<D: Dialect> {
    shared: Arc<Shared<D>>,
    connection: Mutex<Option<D::Connection>>,
    /// Whether there may be locks on it.
    taken: AtomicBool,
}

impl<D: Dialect> AdvisoryGuard for ServerNames<D> {
    fn try_lock(&self, names: Vec<String>) -> Boxed<'_, Result<Vec<bool>, Failure>> {
        Box::pin(async move {
            let mut place = self.connection.lock().await;
            let mut connection = match place.take() {
                Some(connection) => connection,
                None => self.shared.connection().await?,
            };
            let trying = D::try_lock(&mut connection, &names);
            let taken = self.shared.within(self.shared.statement(), trying).await?;
            self.taken.store(true, Ordering::Release);
            *place = Some(connection);
            Ok(taken)
        })
    }

    fn unlock(&self, names: Vec<String>) -> Boxed<'_, ()> {
        Box::pin(async move {
            let mut place = self.connection.lock().await;
            let Some(mut connection) = place.take() else { return };
            let giving = D::unlock(&mut connection, &names);
            // What cannot be given back ends with its connection.
            if self.shared.within(self.shared.statement(), giving).await.is_ok() {
                *place = Some(connection);
            }
        })
    }

    fn look(&self) -> Boxed<'_, bool> {
        Box::pin(async move {
            let mut place = self.connection.lock().await;
            let Some(mut connection) = place.take() else {
                return !self.taken.swap(false, Ordering::AcqRel);
            };
            let ping = self.shared.base.dialect.answer(&mut connection, &Ping);
            let alive = self
                .shared
                .within(self.shared.base.settings.connect_timeout, ping)
                .await
                .is_ok();
            if alive {
                *place = Some(connection);
            } else {
                self.taken.store(false, Ordering::Release);
            }
            alive
        })
    }
}
