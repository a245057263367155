//! What a subscription reads.

use std::sync::Arc;
use std::time::Duration;

use super::broker::{MemoryConnection, Shared};
use super::fetch::MemoryFetch;
use super::held::Holder;
use super::route::check_source;
use super::settle::MemorySettle;
use super::store::{Kind, Store};
use super::walk::Walk;
use crate::transport::{Audience, Capabilities, DeadLetters, Source, TransportError};

/// What a subscription on a [`MemoryBroker`](super::MemoryBroker) reads: a queue, a pattern or a broadcast.
///
/// The [module](super) says who gets what.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::memory::Queue;
///
/// let shared = Queue::new("orders").lease(Duration::from_secs(30));
/// let all_regions = Queue::new("orders.*");
/// let everyone = Queue::broadcast("prices");
/// # let _ = (shared, all_regions, everyone);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    name: String,
    broadcast: bool,
    lease: Option<Duration>,
    /// In the place of what the fields above say.
    audience: Option<Audience>,
}

impl Queue {
    /// The queue of this name, or, where a level is `*` or the last is `>`, all names that match.
    ///
    /// Subscriptions on the same text share its messages.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            broadcast: false,
            lease: None,
            audience: None,
        }
    }

    /// A copy of everything that is published to this name while the subscription is open.
    pub fn broadcast(name: impl Into<String>) -> Self {
        Self {
            broadcast: true,
            ..Self::new(name)
        }
    }

    /// What a source of another broker reads, with those who share it or get it too.
    #[cfg(feature = "testing")]
    pub(crate) fn for_audience(name: impl Into<String>, audience: Audience) -> Self {
        Self {
            audience: Some(audience),
            ..Self::new(name)
        }
    }

    /// Sets how long a delivery may stay in hand unless [renewed](crate::transport::Settle::renew); without it, as long as
    /// the subscription is open.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }
}

impl Source for Queue {
    type Connection = MemoryConnection;
    type Fetch = MemoryFetch;
    type Settle = MemorySettle;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let own = Capabilities::none().with_delay().with_dead_letters().with_attempts();
        match self.lease {
            Some(lease) => own.with_lease(lease),
            None => own,
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        if self.audience.is_some() {
            return Ok(());
        }
        check_source(&self.name)?;
        if self.broadcast && super::route::is_pattern(&self.name) {
            return Err(TransportError::new(
                crate::transport::ErrorKind::Invalid,
                format!(
                    "`{}` is a pattern, and a broadcast reads one name; use `Queue::new`",
                    self.name
                ),
            ));
        }
        Ok(())
    }

    async fn open(&self, connection: &MemoryConnection) -> Result<(MemoryFetch, MemorySettle), TransportError> {
        self.check()?;
        let shared = connection.open(super::Operation::Open)?;
        let capacity = shared.capacity();
        let store = {
            let mut directory = shared.directory();
            let store = if let Some(audience) = &self.audience {
                directory.copy(&self.name, audience, capacity)
            } else if self.broadcast {
                directory.broadcast(&self.name, capacity)
            } else {
                directory.queue(&self.name, capacity)
            };
            directory.open(&store);
            store
        };
        let (holder, cuts) = {
            let mut held = store.lock();
            (held.new_holder(), held.cuts)
        };
        let subscription = Arc::new(Subscription {
            shared: Arc::clone(shared),
            store,
            holder,
            lease: self.lease,
        });
        Ok((
            MemoryFetch::new(Arc::clone(&subscription), cuts),
            MemorySettle::new(subscription),
        ))
    }

    async fn dead_letters(
        &self,
        connection: &MemoryConnection,
    ) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        let shared = connection.open(super::Operation::Open)?;
        Ok(Some(Box::new(Walk::new(Arc::clone(shared), self.name.clone()))))
    }
}

/// What the two halves of a subscription share. Its end ends a broadcast's queue.
pub(super) struct Subscription {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<Store>,
    pub(super) holder: Holder,
    pub(super) lease: Option<Duration>,
}

impl Subscription {
    /// Puts back all that is in hand; nothing of it can be settled any more.
    pub(super) fn give_back(&self) {
        if self.store.lock().end(self.holder) {
            self.store.arrivals.all();
        }
        self.store.changes.all();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // What the fetch half took after the settle half had ended.
        self.give_back();
        if self.store.kind == Kind::Broadcast {
            self.shared.directory().remove(&self.store);
            self.store.lock().gone = true;
            self.store.wake_all();
        }
    }
}
