//! One queue: what it holds, behind one lock, and the signals of what happens to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::dead::Shelf;
use super::held::Held;

/// What a store is filled by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Queue,
    Pattern,
    Broadcast,
    /// A copy that the subscriptions of a group share.
    Group(Arc<str>),
}

/// One queue.
pub(super) struct Store {
    /// Orders the locks of a publish to several.
    pub(super) id: u64,
    pub(super) kind: Kind,
    /// The text that a subscription names it by.
    pub(super) name: Arc<str>,
    pub(super) capacity: usize,
    /// Where its dead letters are kept.
    pub(super) shelf: Arc<Shelf>,
    held: Mutex<Held>,
    /// Something became ready, or the time to wait for changed.
    pub(super) arrivals: Signal,
    /// A message was let go.
    pub(super) room: Signal,
    /// Anything happened: for those who watch.
    pub(super) changes: Signal,
}

impl Store {
    pub(super) fn new(id: u64, kind: Kind, name: Arc<str>, capacity: usize, shelf: Arc<Shelf>) -> Self {
        Self {
            id,
            kind,
            name,
            capacity,
            shelf,
            held: Mutex::default(),
            arrivals: Signal::default(),
            room: Signal::default(),
            changes: Signal::default(),
        }
    }

    /// The lock is held for short, straight pieces of code; what a panic left is whole.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_full(&self, held: &Held) -> bool {
        self.left(held) == 0
    }

    /// How many more messages it takes.
    pub(super) fn left(&self, held: &Held) -> usize {
        if held.gone {
            usize::MAX
        } else {
            self.capacity.saturating_sub(held.len())
        }
    }

    /// Wakes everyone: the link was cut, or the store is gone.
    pub(super) fn wake_all(&self) {
        self.arrivals.all();
        self.room.all();
        self.changes.all();
    }
}

/// A [`Notify`] that costs one load where no one waits.
#[derive(Default)]
pub(super) struct Signal {
    notify: Notify,
    waiting: AtomicUsize,
}

impl Signal {
    /// Counts the caller among those who wait. To be done, and [`Waiting::notified`] made, before the look that finds nothing.
    pub(super) fn join(&self) -> Waiting<'_> {
        // Relaxed: the store's lock, taken by the looking and by the changing side, orders it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting { signal: self }
    }

    /// Wakes one of those who wait.
    #[inline]
    pub(super) fn one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.notify.notify_one();
        }
    }

    /// Wakes all who wait.
    #[inline]
    pub(super) fn all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.notify.notify_waiters();
        }
    }
}

/// One who waits for a [`Signal`], until dropped.
pub(super) struct Waiting<'a> {
    signal: &'a Signal,
}

impl<'a> Waiting<'a> {
    pub(super) fn notified(&self) -> Notified<'a> {
        self.signal.notify.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.signal.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
