//! The way to the writer, and its life: it is started again when it died.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ruststream::transport::{ErrorKind, TransportError};
use tokio::sync::{mpsc, oneshot};

use super::schema;
use super::writer::Writer;
use crate::broker::Settings;
use crate::connection::Statistics;
use crate::error::Failure;
use crate::operation::{Operation, Reply};

/// How many operations may wait for the writer; whoever comes then waits to get in.
const CAPACITY: usize = 1024;

/// Sends operations to the writer. Clones reach the same one.
#[derive(Clone)]
pub(crate) struct WriterHandle {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<Settings>,
    sender: Mutex<mpsc::Sender<Operation>>,
    closed: AtomicBool,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transactions: AtomicU64,
    pub(super) claims: AtomicU64,
    pub(super) empty_claims: AtomicU64,
    pub(super) polls: AtomicU64,
    pub(super) busy_retries: AtomicU64,
    pub(super) opened: AtomicU64,
}

impl Counters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl WriterHandle {
    /// Opens the file and starts the writer.
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, TransportError> {
        let connection = schema::open_writer(&settings).await?;
        let counters = Arc::new(Counters::default());
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let mut writer = Writer::new(Arc::clone(&settings), Arc::clone(&counters), receiver);
        writer.adopt(connection).await?;
        tokio::spawn(writer.run());
        Ok(Self {
            shared: Arc::new(Shared {
                settings,
                sender: Mutex::new(sender),
                closed: AtomicBool::new(false),
                counters,
            }),
        })
    }

    /// An error once the connection was closed by this process.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(Failure::closed(&self.shared.settings.path));
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
        self.deliver(operation(reply)).await;
        Ok(answer)
    }

    /// Sends an operation and waits for its answer.
    pub(crate) async fn ask<T>(&self, operation: impl FnOnce(Reply<T>) -> Operation) -> Result<T, Failure> {
        let answer = self.send(operation).await?;
        answer.await.unwrap_or_else(|_| Err(self.died()))
    }

    /// Sends an operation that no one waits for. Where the writer has too much to do it is dropped.
    pub(crate) fn notify(&self, operation: Operation) {
        if self.check_open().is_ok() {
            let _ = self.try_deliver(operation);
        }
    }

    async fn deliver(&self, mut operation: Operation) {
        while let Err((sender, refused)) = self.try_deliver(operation) {
            match sender.send(refused).await {
                Ok(()) => return,
                Err(mpsc::error::SendError(back)) => operation = back,
            }
        }
    }

    /// Sends without waiting; a full channel gives the operation back.
    fn try_deliver(&self, operation: Operation) -> Result<(), (mpsc::Sender<Operation>, Operation)> {
        let mut sender = self.shared.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let operation = match sender.try_send(operation) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(operation)) => return Err((sender.clone(), operation)),
            Err(mpsc::error::TrySendError::Closed(operation)) => operation,
        };
        // Outside of a runtime no one could run it: the dropped reply tells.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return Ok(());
        };
        if self.check_open().is_err() {
            return Ok(());
        }
        tracing::error!(path = %self.shared.settings.path.display(), "the writer of the file died; it is started again");
        let (fresh, receiver) = mpsc::channel(CAPACITY);
        let _ = fresh.try_send(operation);
        *sender = fresh;
        let (settings, counters) = (Arc::clone(&self.shared.settings), Arc::clone(&self.shared.counters));
        runtime.spawn(Writer::new(settings, counters, receiver).run());
        Ok(())
    }

    /// Why an operation was dropped without an answer.
    pub(crate) fn died(&self) -> Failure {
        self.check_open().err().unwrap_or_else(|| {
            Failure::new(
                ErrorKind::Unavailable,
                format!(
                    "the writer of {} ended in the middle of its work; it is started again on the next call",
                    self.shared.settings.path.display()
                ),
            )
        })
    }

    /// Lets the writer finish what was sent and ends it. Later calls fail.
    pub(crate) async fn close(&self) {
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let (reply, answer) = oneshot::channel();
        self.deliver(Operation::Close { reply }).await;
        let _ = answer.await;
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

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle")
            .field("path", &self.shared.settings.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ruststream::transport::{Broker, Connection};

    use super::*;
    use crate::broker::SqlxBroker;

    #[tokio::test]
    async fn a_writer_that_died_is_an_error_once_and_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let connection = SqlxBroker::sqlite(directory.path().join("queue.db"))
            .connect()
            .await
            .unwrap();
        let writer = connection.writer();
        // Whoever waits is told.
        let waiting = writer.send(|reply| Operation::Ping { reply }).await.unwrap();
        writer.notify(Operation::Panic);
        let asked = writer.send(|reply| Operation::Ping { reply }).await.unwrap();
        let _ = waiting.await;
        assert!(asked.await.is_err(), "the reply was dropped");
        assert!(writer.died().kind == ErrorKind::Unavailable);
        // The next call finds a new one.
        connection.ping().await.unwrap();
        assert_eq!(connection.statistics().opened, 2);
        connection.close().await;
        assert_eq!(connection.ping().await.unwrap_err().kind(), ErrorKind::Closed);
    }
}
