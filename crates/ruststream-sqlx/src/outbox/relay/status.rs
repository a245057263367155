//! What an outbox and its relays tell each other within a process.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::watch;

/// Wakes relays that wait, and tells when they have caught up.
#[derive(Debug, Default)]
pub struct Status {
    /// Raised by whoever wakes them, so that nothing slips between a look and a wait.
    woken: watch::Sender<u64>,
    /// How often it was asked whether they have caught up.
    asked: AtomicU64,
    /// Up to which of those they have.
    answered: watch::Sender<u64>,
    /// Records in the hands of relays of this process.
    in_hand: AtomicUsize,
}

impl Status {
    pub(crate) fn wake(&self) {
        self.woken.send_modify(|times| *times = times.wrapping_add(1));
    }

    /// What a relay waits on: it has seen all that was told before this call.
    pub(crate) fn wakes(&self) -> watch::Receiver<u64> {
        self.woken.subscribe()
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// A look that began after this was asked has found nothing.
    pub(crate) fn found_nothing(&self, asked: u64) {
        if self.in_hand.load(Ordering::SeqCst) == 0 {
            self.answered.send_if_modified(|answered| {
                let newer = asked > *answered;
                *answered = asked.max(*answered);
                newer
            });
        }
    }

    /// Counts records in hand until it is dropped.
    pub(crate) fn take(&self, records: usize) -> InHand<'_> {
        self.in_hand.fetch_add(records, Ordering::SeqCst);
        InHand { status: self, records }
    }

    /// Waits until nothing was found by a look that began after this call.
    pub(crate) async fn caught_up(&self) {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut answers = self.answered.subscribe();
        self.wake();
        // The sender lives as long as `self`.
        let _ = answers.wait_for(|answered| *answered >= asked).await;
    }
}

pub(crate) struct InHand<'a> {
    status: &'a Status,
    records: usize,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.status.in_hand.fetch_sub(self.records, Ordering::SeqCst);
    }
}
