//! Sending messages.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use super::broker::{Shared, check_open};
use super::faults::Operation;
use super::held::Held;
use super::route::Route;
use super::store::Store;
use crate::message::Outgoing;
use crate::transport::{ErrorKind, Publish, PublishError, TransportError};

/// Publishes to a [`MemoryBroker`](super::MemoryBroker).
///
/// Where a destination is full it waits for room. When the broker's [deadline](super::MemoryBroker::publish_deadline) has
/// passed, the rest of the call fails as [busy](ErrorKind::Busy), so that what was stored is in order and without gaps.
pub struct MemoryPublisher {
    shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
    /// The version of the directory's routes.
    version: Arc<AtomicU64>,
    /// The route of the last message, which mostly is that of the next, and the version that it is of.
    last: Mutex<Option<(u64, Arc<Route>)>>,
}

impl MemoryPublisher {
    pub(super) fn new(shared: Arc<Shared>, closed: Arc<AtomicBool>) -> Self {
        let version = shared.directory().version();
        Self {
            shared,
            closed,
            version,
            last: Mutex::default(),
        }
    }

    fn route(&self, destination: &str) -> Result<Arc<Route>, TransportError> {
        // Relaxed: who has seen a subscription opened or ended has seen the version change.
        let version = self.version.load(Ordering::Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, route)) = &*last
            && *known == version
            && *route.destination == *destination
        {
            return Ok(Arc::clone(route));
        }
        let route = self.shared.directory().route(destination, self.shared.capacity())?;
        *last = Some((version, Arc::clone(&route)));
        Ok(route)
    }
}

impl Clone for MemoryPublisher {
    /// Each remembers a route of its own.
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            closed: Arc::clone(&self.closed),
            version: Arc::clone(&self.version),
            last: Mutex::default(),
        }
    }
}

/// The state of one call.
struct Call<'a> {
    publisher: &'a MemoryPublisher,
    messages: &'a [Outgoing<'a>],
    published_at: SystemTime,
    /// How many were stored or refused.
    done: usize,
    refused: Vec<(usize, TransportError)>,
}

impl Call<'_> {
    /// Goes on each time a full queue makes room; refuses the rest when the deadline has passed.
    async fn wait_for_room(&mut self, mut store: Arc<Store>) {
        let deadline = self.publisher.shared.publish_deadline();
        let at = Instant::now() + deadline;
        loop {
            let made = {
                let waiting = store.room.join();
                let made = pin!(waiting.notified());
                // Room made between the look that found none and here woke no one.
                let is_full = store.is_full(&store.lock());
                !is_full || timeout_at(at, made).await.is_ok()
            };
            if !made {
                while self.done < self.messages.len() {
                    self.refuse(full(&store, deadline));
                }
                return;
            }
            match self.advance() {
                Some(next) => store = next,
                None => return,
            }
        }
    }

    /// Stores up to the first message whose destination is full, and answers the full queue.
    fn advance(&mut self) -> Option<Arc<Store>> {
        while let Some(next) = self.messages.get(self.done) {
            match self.publisher.route(next.destination()) {
                Ok(route) => {
                    if let Some(full) = self.store(&route) {
                        return Some(full);
                    }
                }
                Err(error) => self.refuse(error),
            }
        }
        None
    }

    fn refuse(&mut self, error: TransportError) {
        self.refused.push((self.done, error));
        self.done += 1;
    }

    /// Stores the next messages that go the same way, and answers the queue that is full, if one is.
    fn store(&mut self, route: &Route) -> Option<Arc<Store>> {
        let before = self.done;
        let (full, timed) = if let [store] = &route.stores[..] {
            self.fill(route, &mut [store.lock()])
        } else {
            // Ascending ids: publishes that share queues lock them in one order.
            let mut held: Vec<_> = route.stores.iter().map(|store| store.lock()).collect();
            self.fill(route, &mut held)
        };
        if self.done > before {
            for store in &route.stores {
                if timed {
                    store.arrivals.all();
                } else {
                    store.arrivals.one();
                }
                store.changes.all();
            }
        }
        full.map(|index| Arc::clone(&route.stores[index]))
    }

    /// Answers the index of the full queue, and whether something waits for its time.
    fn fill(&mut self, route: &Route, held: &mut [MutexGuard<'_, Held>]) -> (Option<usize>, bool) {
        let limit = self.publisher.shared.max_payload();
        let mut full = None;
        let left = route.stores.iter().zip(&*held).map(|(store, held)| store.left(held));
        let mut left = left.min().unwrap_or(usize::MAX);
        let mut destination = &*route.destination;
        while let Some(message) = self.messages.get(self.done) {
            // Messages of one call mostly borrow one name, which a comparison of pointers tells.
            if !std::ptr::eq(message.destination(), destination) {
                if message.destination() != destination {
                    break;
                }
                destination = message.destination();
            }
            if message.payload().len() > limit {
                self.refuse(too_large(message, limit));
                continue;
            }
            if left == 0 {
                full = route
                    .stores
                    .iter()
                    .zip(&*held)
                    .position(|(store, held)| store.is_full(held));
                break;
            }
            left -= 1;
            for held in held.iter_mut().filter(|held| !held.gone) {
                held.put(message, &route.destination, self.published_at);
            }
            self.done += 1;
        }
        (full, held.iter().any(|held| held.next_event().is_some()))
    }
}

#[cold]
fn too_large(message: &Outgoing<'_>, limit: usize) -> TransportError {
    TransportError::new(
        ErrorKind::TooLarge,
        format!(
            "a message to `{}` has {} bytes and the limit is {limit}; send less, or raise `MemoryBroker::max_payload`",
            message.destination(),
            message.payload().len(),
        ),
    )
}

#[cold]
fn full(store: &Store, deadline: Duration) -> TransportError {
    TransportError::new(
        ErrorKind::Busy,
        format!(
            "`{}` is full: it holds {} messages, its capacity, and made no room within {deadline:?}; add workers, raise \
             `MemoryBroker::capacity`, or publish less",
            store.name, store.capacity,
        ),
    )
}

impl Publish for MemoryPublisher {
    async fn publish(&self, messages: &[Outgoing<'_>]) -> Result<(), PublishError> {
        check_open(&self.closed)?;
        self.shared.faults.check(Operation::Publish)?;
        let mut call = Call {
            publisher: self,
            messages,
            published_at: SystemTime::now(),
            done: 0,
            refused: Vec::new(),
        };
        if let Some(store) = call.advance() {
            // Boxed: waiting is rare, and every publish would carry the room that it takes.
            Box::pin(call.wait_for_room(store)).await;
        }
        match PublishError::some(call.refused) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}
