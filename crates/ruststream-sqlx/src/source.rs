//! A queue to read from.

use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Capabilities, DeadLetters, ErrorKind, Source, TransportError};

use crate::clock::millis;
use crate::connection::SqlxConnection;
use crate::fetch::InboxFetch;
use crate::lease::Book;
use crate::settle::InboxSettle;
use crate::walk::Walk;

/// The lease unless another is set.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest name of a queue, in bytes.
const LONGEST_NAME: usize = 200;

/// A named queue of the default table.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream_sqlx::Inbox;
///
/// let orders = Inbox::queue("orders").lease(Duration::from_secs(5));
/// # let _ = orders;
/// ```
#[derive(Debug, Clone)]
pub struct Inbox {
    queue: Arc<str>,
    lease: Duration,
}

impl Inbox {
    /// The queue of this name; any text of 1 to 200 bytes. It needs no making: a queue is there as soon as someone names it.
    ///
    /// A name that is empty or too long is told when the app is checked or started.
    pub fn queue(name: impl AsRef<str>) -> Self {
        Self {
            queue: name.as_ref().into(),
            lease: DEFAULT_LEASE,
        }
    }

    /// Sets how long a delivery is leased: 30 seconds unless set, and at least a millisecond.
    ///
    /// Leases are renewed while handlers work, so this bounds how long a message waits after its process was killed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(1));
        self
    }
}

/// Says what is wrong with the name of a queue.
pub(crate) fn check_name(name: &str) -> Result<(), TransportError> {
    let text = if name.is_empty() {
        "the name of the queue is empty: give it one of 1 to 200 bytes".to_owned()
    } else if name.len() > LONGEST_NAME {
        let start: String = name.chars().take(20).collect();
        format!(
            "the name of the queue {start:?}... has {} bytes: give it one of at most {LONGEST_NAME}",
            name.len()
        )
    } else if name.contains('\0') {
        format!("the name of the queue {name:?} contains a NUL, which not every database can store: leave it out")
    } else {
        return Ok(());
    };
    Err(TransportError::new(ErrorKind::Invalid, text))
}

impl Source for Inbox {
    type Connection = SqlxConnection;
    type Fetch = InboxFetch;
    type Settle = InboxSettle;

    fn name(&self) -> &str {
        &self.queue
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with_lease(self.lease)
            .with_delay()
            .with_dead_letters()
            .with_attempts()
    }

    fn check(&self) -> Result<(), TransportError> {
        check_name(&self.queue)
    }

    async fn open(&self, connection: &SqlxConnection) -> Result<(InboxFetch, InboxSettle), TransportError> {
        self.check()?;
        let engine = connection.engine();
        engine.check_open()?;
        let book = Book::default();
        let lease = millis(self.lease);
        Ok((
            InboxFetch::new(engine.clone(), Arc::clone(&self.queue), lease, book.clone()),
            InboxSettle::new(engine.clone(), Arc::clone(&self.queue), lease, book),
        ))
    }
    async fn dead_letters(&self, connection: &SqlxConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        let walk = Walk::new(connection.engine().clone(), Arc::clone(&self.queue));
        Ok(Some(Box::new(walk)))
    }
}
