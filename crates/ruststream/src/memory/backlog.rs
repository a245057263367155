//! What is left to do in the queues that are read: what a test waits for.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::MemoryBroker;
use super::store::Store;

/// What a queue holds that some subscription reads.
pub(crate) struct Backlog {
    pub(crate) name: Arc<str>,
    pub(crate) ready: usize,
    pub(crate) delayed: usize,
    /// When the next of the delayed is due.
    pub(crate) due: Option<Instant>,
    pub(crate) in_hand: usize,
    /// Messages stored in it since it was made.
    pub(crate) published: u64,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.ready + self.delayed + self.in_hand == 0
    }

    fn of(store: &Store) -> Self {
        let held = store.lock();
        let (ready, delayed) = (held.ready(), held.delayed());
        Self {
            name: Arc::clone(&store.name),
            ready,
            delayed,
            due: held.next_event(),
            in_hand: held.len().saturating_sub(ready + delayed),
            published: held.counts.published,
        }
    }
}

impl MemoryBroker {
    /// What the queues hold that are read; those that nobody reads are left out.
    pub(crate) fn backlogs(&self) -> Vec<Backlog> {
        self.read().iter().map(|store| Backlog::of(store)).collect()
    }

    /// Waits until each of the queues that are read has held nothing at some moment, though not all at the same.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub(crate) async fn each_idle(&self) {
        for store in self.read() {
            let waiting = store.changes.join();
            loop {
                let change = pin!(waiting.notified());
                if store.lock().len() == 0 {
                    break;
                }
                change.await;
            }
        }
    }

    /// Whether a subscription reads what is published to this name.
    pub(crate) fn is_read(&self, destination: &str) -> bool {
        let route = self.shared.directory().route(destination, self.shared.capacity());
        route.is_ok_and(|route| route.stores.iter().any(|store| store.lock().opened))
    }

    /// Whether a subscription by this text reads many names.
    pub(crate) fn is_pattern(text: &str) -> bool {
        super::route::is_pattern(text)
    }

    fn read(&self) -> Vec<Arc<Store>> {
        let mut stores = self.shared.directory().all();
        stores.retain(|store| store.lock().opened);
        stores.sort_by_key(|store| store.id);
        stores
    }
}
