//! What a worker shows of itself to the others: the leases in its hand, and what it was about when it panicked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entry::Entry;
use crate::handler::Cancel;
use crate::transport::Delivery;

/// What a worker shows of itself to the others.
pub(super) struct Slot<D> {
    leases: Mutex<Vec<u64>>,
    pub(super) cancel: Arc<Cancel>,
    /// What the worker was about when it panicked.
    wreck: Mutex<Vec<Entry<D>>>,
}

impl<D: Delivery> Slot<D> {
    pub(super) fn new() -> Self {
        Self {
            leases: Mutex::default(),
            cancel: Arc::default(),
            wreck: Mutex::default(),
        }
    }

    /// Gives out what a worker was about when it panicked.
    pub(super) fn take_wreck(&self) -> Vec<Entry<D>> {
        std::mem::take(&mut *self.wreck.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in what a worker was about when it panicked.
    pub(super) fn wreck(&self, entries: impl Iterator<Item = Entry<D>>) {
        self.wreck
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(entries);
    }

    fn leases(&self) -> MutexGuard<'_, Vec<u64>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the token of what is being handled, where one of these leases is its own.
    pub(super) fn lost(&self, lost: &[u64]) {
        let held = self.leases();
        if held.iter().any(|lease| lost.contains(lease)) {
            self.cancel.cancel();
        }
    }

    /// Notes the leases of what its worker is about to handle, under a cancellation token of its own.
    pub(super) fn hold(&self, entries: &[Entry<D>]) {
        let mut leases = self.leases();
        // Under the lock: a lease of the message before that is lost just now does not cancel the token of this one.
        self.cancel.renew();
        leases.clear();
        leases.extend(entries.iter().map(|entry| entry.delivery.lease_id()));
    }
}
