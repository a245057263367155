//! The half of a subscription that takes deliveries.

use std::pin::pin;
use std::sync::Arc;

use super::delivery::MemoryDelivery;
use super::faults::Operation;
use super::source::Subscription;
use crate::transport::{ErrorKind, Fetch, TransportError};

/// Takes deliveries from a queue of a [`MemoryBroker`](super::MemoryBroker).
pub struct MemoryFetch {
    subscription: Arc<Subscription>,
    /// How many cuts of the link it knows of.
    cuts: u64,
}

impl MemoryFetch {
    pub(super) fn new(subscription: Arc<Subscription>, cuts: u64) -> Self {
        Self { subscription, cuts }
    }

    /// Takes what is there; false if that is nothing. `calls` is 1 where this begins a call of `fetch`, else 0.
    #[inline]
    fn take(&mut self, room: usize, into: &mut Vec<MemoryDelivery>, calls: u64) -> Result<bool, TransportError> {
        let Subscription {
            store, holder, lease, ..
        } = &*self.subscription;
        let mut held = store.lock();
        held.counts.fetch_calls += calls;
        if held.cuts != self.cuts {
            self.cuts = held.cuts;
            return Err(cut(&store.name));
        }
        let count = held.take(*holder, *lease, room, into);
        let more = held.ready() > 0;
        drop(held);
        if more {
            store.arrivals.one();
        }
        Ok(count > 0)
    }

    /// Waits for something to take.
    async fn wait(&mut self, room: usize, into: &mut Vec<MemoryDelivery>) -> Result<(), TransportError> {
        let subscription = Arc::clone(&self.subscription);
        let waiting = subscription.store.arrivals.join();
        loop {
            let mut arrival = pin!(waiting.notified());
            if self.take(room, into, 0)? {
                return Ok(());
            }
            let next_event = subscription.store.lock().next_event();
            match next_event {
                // Which of the two came first does not matter: the next look tells.
                Some(at) => drop(tokio::time::timeout_at(at, arrival.as_mut()).await),
                None => arrival.await,
            }
        }
    }
}

#[cold]
fn cut(name: &str) -> TransportError {
    TransportError::new(
        ErrorKind::Unavailable,
        format!("the link to the in-process broker was cut while `{name}` was read; the next fetch opens it again"),
    )
}

impl Fetch for MemoryFetch {
    type Delivery = MemoryDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<MemoryDelivery>) -> Result<(), TransportError> {
        // Deliveries that are always at hand must not keep the thread from its other tasks.
        tokio::task::consume_budget().await;
        if let Err(error) = self.subscription.shared.faults.check(Operation::Fetch) {
            self.subscription.store.lock().counts.fetch_calls += 1;
            return Err(error);
        }
        if self.take(room, into, 1)? {
            return Ok(());
        }
        self.wait(room, into).await
    }
}
