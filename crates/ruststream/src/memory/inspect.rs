//! Looking into the queues, and waiting for what happens in them.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;

use super::MemoryBroker;
use super::broker::Shared;
use super::dead::DeadMessage;
use super::held::Held;
use super::store::Store;
use crate::message::HeaderMap;

/// A message that stands in a queue, ready or delayed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandingMessage {
    /// The name it was published to.
    pub destination: String,
    /// Its bytes.
    pub payload: Bytes,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its key.
    pub key: Option<Bytes>,
    /// How often it was handed out so far.
    pub attempts: u32,
}

/// What happened in a queue since it was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Messages stored.
    pub published: u64,
    /// Calls of `fetch`, the failed and the waiting included.
    pub fetch_calls: u64,
    /// Messages handed out, each time counted.
    pub delivered: u64,
    /// Calls of `settle`, the failed included.
    pub settle_calls: u64,
    /// Calls of `renew` that reached the queue.
    pub renew_calls: u64,
    /// Messages acked.
    pub acked: u64,
    /// Retries, each time counted.
    pub retried: u64,
    /// Messages released, each time counted.
    pub released: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Stale receipts.
    pub stale: u64,
}

/// For tests: what stands where, and waiting for it without sleeping.
///
/// `name` is a queue's name or a pattern's text, as subscribed. The waiting calls have no deadline of their own, so that a
/// paused clock is not moved by them.
impl MemoryBroker {
    /// What stands in a queue and is in no one's hand: what is ready, in order, then what is delayed.
    pub fn published(&self, name: &str) -> Vec<StandingMessage> {
        let Some(store) = self.find(name) else {
            return Vec::new();
        };
        let standing = store.lock().standing();
        standing
            .into_iter()
            .map(|(message, attempts)| StandingMessage {
                destination: message.origin.destination().to_owned(),
                payload: Bytes::copy_from_slice(&message.payload),
                headers: message.headers.clone(),
                key: message.key().map(Bytes::copy_from_slice),
                attempts,
            })
            .collect()
    }

    /// How many messages a queue holds: ready, delayed and in hand.
    pub fn held(&self, name: &str) -> usize {
        self.find(name).map_or(0, |store| store.lock().len())
    }

    /// What happened in a queue so far.
    pub fn counts(&self, name: &str) -> Counts {
        self.find(name)
            .map_or_else(Counts::default, |store| store.lock().counts)
    }

    /// Waits until a queue holds nothing: nothing ready, delayed or in hand.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn idle(&self, name: &str) {
        self.until(name, |held| held.len() == 0).await;
    }

    /// Waits until `count` messages of a queue were acked or became dead letters, since the queue was made.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn settled(&self, name: &str, count: u64) {
        self.until(name, |held| held.counts.acked + held.counts.dead >= count)
            .await;
    }

    /// Waits until `count` messages were stored in a queue since it was made.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn arrived(&self, name: &str, count: u64) {
        self.until(name, |held| held.counts.published >= count).await;
    }

    async fn until(&self, name: &str, reached: impl Fn(&Held) -> bool) {
        let store = self.shared.directory().queue(name, self.shared.capacity());
        let waiting = store.changes.join();
        loop {
            let change = pin!(waiting.notified());
            if reached(&store.lock()) {
                return;
            }
            change.await;
        }
    }

    /// The dead letters of the subscriptions on `name`, the oldest first.
    pub fn dead_letters(&self, name: &str) -> Vec<DeadMessage> {
        let letters = self.shared.directory().shelf(name);
        letters.map_or_else(Vec::new, |kept| kept.lock().clone())
    }

    /// Takes the dead letters of the subscriptions on `name` out of the broker.
    pub fn take_dead_letters(&self, name: &str) -> Vec<DeadMessage> {
        let letters = self.shared.directory().shelf(name);
        letters.map_or_else(Vec::new, |kept| std::mem::take(&mut *kept.lock()))
    }

    /// Puts the dead letters of the subscriptions on `name` back to be delivered, as new: only to those subscriptions, at the
    /// end of what is ready, with attempts counted from one. Answers how many; those for which there is no room, or no
    /// broadcast subscription any more, stay dead letters.
    pub fn replay(&self, name: &str) -> usize {
        let letters = self.take_dead_letters(name);
        let count = letters.len();
        count - self.shared.put_again(name, letters)
    }

    fn find(&self, name: &str) -> Option<Arc<Store>> {
        self.shared.directory().find(name)
    }
}

impl Shared {
    /// Puts dead letters of the sources of this name back to be delivered. Those for which there is no room go back to their shelf;
    /// answers how many. They were taken off it before: elsewhere a queue is locked before its dead letters, never the other way
    /// round.
    pub(super) fn put_again(&self, name: &str, letters: Vec<DeadMessage>) -> usize {
        let (kept, stores) = {
            let directory = self.directory();
            let mut stores = directory.find_broadcasts(name);
            let own = directory.find(name);
            stores.extend(own.filter(|own| !stores.iter().any(|store| store.id == own.id)));
            (directory.shelf(name), stores)
        };
        let mut left: Vec<_> = letters.into_iter().filter(|dead| !dead.put_again(&stores)).collect();
        let count = left.len();
        if let (false, Some(kept)) = (left.is_empty(), kept) {
            let mut letters = kept.lock();
            left.append(&mut letters);
            *letters = left;
        }
        for store in &stores {
            store.arrivals.all();
            store.changes.all();
        }
        count
    }
}
