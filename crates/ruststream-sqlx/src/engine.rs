//! The way to what works on a database: operations go to the lane of their kind, and a lane that died is started again.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;

use ruststream::transport::ErrorKind;
use tokio::sync::{mpsc, oneshot, watch};

use crate::connection::Statistics;
use crate::error::Failure;
use crate::guard::Guards;
use crate::operation::{Operation, Reply};

/// How many operations may wait for a lane; whoever comes then waits to get in.
const CAPACITY: usize = 1024;

/// What works on a database: tasks, each with a lane of operations that it takes in turn.
pub(crate) trait Driver: Send + Sync + 'static {
    /// How many lanes there are.
    fn lanes(&self) -> usize;

    /// The lane that an operation goes to.
    fn lane_of(&self, operation: &Operation) -> usize;

    /// Starts the task of a lane: it ends when the channel does, or with [`Operation::Close`]. Called once for each lane, and
    /// again when its task has died.
    fn start(&self, lane: usize, receiver: mpsc::Receiver<Operation>, outlet: Outlet);

    /// Where locks are taken.
    fn guards(&self) -> Arc<dyn Guards>;

    /// Where handlers borrow transactions, if they can.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    fn lender(&self) -> Option<Arc<dyn crate::transaction::Lender>> {
        None
    }
}

/// Sends operations to lanes. Clones reach the same ones.
#[derive(Clone)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    label: String,
    driver: Box<dyn Driver>,
    lanes: Vec<Mutex<mpsc::Sender<Operation>>>,
    closed: AtomicBool,
    /// Changes whenever a table of the user's own may have something new.
    tables: watch::Sender<u64>,
    counters: Arc<Counters>,
}

/// What the lanes have done, for [`Statistics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) transactions: AtomicU64,
    pub(crate) claims: AtomicU64,
    pub(crate) empty_claims: AtomicU64,
    pub(crate) polls: AtomicU64,
    pub(crate) busy_retries: AtomicU64,
    pub(crate) opened: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Starts every lane. `label` says in errors which database it is.
    pub(crate) fn start(label: String, counters: Arc<Counters>, driver: impl Driver) -> Self {
        let (lanes, receivers): (Vec<_>, Vec<_>) = (0..driver.lanes()).map(|_| mpsc::channel(CAPACITY)).unzip();
        let engine = Self {
            shared: Arc::new(Shared {
                label,
                driver: Box::new(driver),
                lanes: lanes.into_iter().map(Mutex::new).collect(),
                closed: AtomicBool::new(false),
                tables: watch::Sender::new(0),
                counters,
            }),
        };
        for (lane, receiver) in receivers.into_iter().enumerate() {
            engine.shared.driver.start(lane, receiver, engine.outlet());
        }
        engine
    }

    fn outlet(&self) -> Outlet {
        Outlet(Arc::downgrade(&self.shared))
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn lender(&self) -> Option<Arc<dyn crate::transaction::Lender>> {
        self.shared.driver.lender()
    }

    /// Whether handlers can borrow transactions.
    pub(crate) fn lends(&self) -> bool {
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        return self.lender().is_some();
        #[cfg(not(any(feature = "postgres", feature = "mysql")))]
        return false;
    }

    pub(crate) fn guards(&self) -> Arc<dyn Guards> {
        self.shared.driver.guards()
    }

    /// What changes whenever a table of the user's own may have something new.
    pub(crate) fn table_news(&self) -> watch::Receiver<u64> {
        self.shared.tables.subscribe()
    }

    /// Says that one may.
    pub(crate) fn tell_tables(&self) {
        self.shared.tables.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn label(&self) -> &str {
        &self.shared.label
    }

    /// An error once the connection was closed by this process.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(Failure::closed(&self.shared.label));
        }
        Ok(())
    }

    /// Sends an operation that is answered through the receiver.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes has sent nothing.
    pub(crate) async fn send<T>(
        &self,
        operation: impl FnOnce(Reply<T>) -> Operation,
    ) -> Result<oneshot::Receiver<Result<T, Failure>>, Failure> {
        self.check_open()?;
        let (reply, answer) = oneshot::channel();
        let operation = operation(reply);
        let lane = self.shared.driver.lane_of(&operation);
        self.deliver(lane, operation).await;
        Ok(answer)
    }

    /// Sends an operation and waits for its answer.
    pub(crate) async fn ask<T>(&self, operation: impl FnOnce(Reply<T>) -> Operation) -> Result<T, Failure> {
        let answer = self.send(operation).await?;
        answer.await.unwrap_or_else(|_| Err(self.died()))
    }

    /// Sends an operation that no one waits for. Where its lane has too much to do it is dropped.
    pub(crate) fn notify(&self, operation: Operation) {
        if self.check_open().is_ok() {
            let lane = self.shared.driver.lane_of(&operation);
            let _ = self.try_deliver(lane, operation);
        }
    }

    async fn deliver(&self, lane: usize, mut operation: Operation) {
        while let Err((sender, refused)) = self.try_deliver(lane, operation) {
            match sender.send(refused).await {
                Ok(()) => return,
                Err(mpsc::error::SendError(back)) => operation = back,
            }
        }
    }

    /// Sends without waiting; a full channel gives the operation back.
    fn try_deliver(&self, lane: usize, operation: Operation) -> Result<(), (mpsc::Sender<Operation>, Operation)> {
        let shared = &*self.shared;
        let mut sender = shared.lanes[lane].lock().unwrap_or_else(PoisonError::into_inner);
        let operation = match sender.try_send(operation) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(operation)) => return Err((sender.clone(), operation)),
            Err(mpsc::error::TrySendError::Closed(operation)) => operation,
        };
        // Outside of a runtime no one could run it: the dropped reply tells.
        if tokio::runtime::Handle::try_current().is_err() || self.check_open().is_err() {
            return Ok(());
        }
        tracing::error!(database = %shared.label, lane, "a task that works on the database died; it is started again");
        let (fresh, receiver) = mpsc::channel(CAPACITY);
        let _ = fresh.try_send(operation);
        *sender = fresh;
        shared.driver.start(lane, receiver, self.outlet());
        Ok(())
    }

    /// Why an operation was dropped without an answer.
    pub(crate) fn died(&self) -> Failure {
        self.check_open().err().unwrap_or_else(|| {
            Failure::new(
                ErrorKind::Unavailable,
                format!(
                    "the task that works on {} ended in the middle of its work; it is started again on the next call",
                    self.shared.label
                ),
            )
        })
    }

    /// Lets every lane finish what was sent and ends it. Later calls fail.
    pub(crate) async fn close(&self) {
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        for lane in 0..self.shared.lanes.len() {
            let (reply, answer) = oneshot::channel();
            self.deliver(lane, Operation::Close { reply }).await;
            let _ = answer.await;
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            transactions: read(&counters.transactions),
            claims: read(&counters.claims),
            empty_claims: read(&counters.empty_claims),
            polls: read(&counters.polls),
            busy_retries: read(&counters.busy_retries),
            opened: read(&counters.opened),
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("database", &self.shared.label)
            .finish_non_exhaustive()
    }
}

/// The way from one lane to another, which keeps none of them alive.
#[derive(Clone)]
pub(crate) struct Outlet(Weak<Shared>);

impl Outlet {
    /// As [`Engine::notify`]; nothing once the connection was let go.
    #[allow(dead_code, reason = "not every database has more than one lane")]
    pub(crate) fn notify(&self, operation: Operation) {
        if let Some(shared) = self.0.upgrade() {
            Engine { shared }.notify(operation);
        }
    }
}

/// Lets the tasks run that are ready.
///
/// `tokio::task::yield_now` keeps the waker with the thread until that is idle: where a handler then blocks the thread, the
/// lane would stand still with it, for everyone. Woken so, it waits in the queue, where other threads find it.
pub(crate) async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use ruststream::transport::{Broker, Connection};

    use super::*;
    use crate::broker::SqlxBroker;

    #[tokio::test]
    async fn a_lane_that_died_is_an_error_once_and_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let connection = SqlxBroker::sqlite(directory.path().join("queue.db"))
            .connect()
            .await
            .unwrap();
        let engine = connection.engine();
        // Whoever waits is told.
        let waiting = engine.send(|reply| Operation::Ping { reply }).await.unwrap();
        engine.notify(Operation::Panic);
        let asked = engine.send(|reply| Operation::Ping { reply }).await.unwrap();
        let _ = waiting.await;
        assert!(asked.await.is_err(), "the reply was dropped");
        assert!(engine.died().kind == ErrorKind::Unavailable);
        // The next call finds a new one.
        connection.ping().await.unwrap();
        assert_eq!(connection.statistics().opened, 2);
        connection.close().await;
        assert_eq!(connection.ping().await.unwrap_err().kind(), ErrorKind::Closed);
    }
}
