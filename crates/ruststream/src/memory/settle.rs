//! The half of a subscription that gives receipts back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::dead::DeadMessage;
use super::delivery::MemoryReceipt;
use super::faults::Operation;
use super::held::Held;
use super::source::Subscription;
use crate::transport::{ErrorKind, Settle, Settled, TransportError, Verdict};

/// Gives receipts back to a queue of a [`MemoryBroker`](super::MemoryBroker).
///
/// Dropped or closed, it gives back to the queue all that its subscription still has in hand, each in its old place and with
/// its attempt counted: as a broker does when a consumer's connection ends.
pub struct MemorySettle {
    subscription: Arc<Subscription>,
}

impl MemorySettle {
    pub(super) fn new(subscription: Arc<Subscription>) -> Self {
        Self { subscription }
    }

    fn settle_now(&self, finished: &mut Vec<(MemoryReceipt, Verdict)>) -> Result<Settled, TransportError> {
        let Subscription { store, holder, .. } = &*self.subscription;
        let mut outcome = Outcome::default();
        let mut acked = 0;

        let mut held = store.lock();
        if held.has_leases() {
            held.advance(Instant::now());
        }
        for (receipt, verdict) in finished.drain(..) {
            if matches!(verdict, Verdict::Ack) {
                if held.ack(&receipt, *holder) {
                    acked += 1;
                } else {
                    outcome.stale += 1;
                }
            } else {
                self.settle_other(&mut held, receipt, verdict, &mut outcome);
            }
        }
        held.counts.settle_calls += 1;
        held.counts.acked += acked;
        held.counts.stale += outcome.stale as u64;
        drop(held);

        if acked > 0 || outcome.left {
            store.room.all();
        }
        if outcome.returned {
            store.arrivals.all();
        }
        store.changes.all();
        if outcome.kept.is_empty() {
            Ok(Settled { stale: outcome.stale })
        } else {
            finished.append(&mut outcome.kept);
            Err(too_many_dead(&store.name, store.capacity))
        }
    }

    /// Every verdict but the ack.
    #[inline(never)]
    fn settle_other(&self, held: &mut Held, receipt: MemoryReceipt, verdict: Verdict, outcome: &mut Outcome) {
        let Subscription { store, holder, .. } = &*self.subscription;
        match verdict {
            Verdict::DeadLetter(letter) => {
                if !held.is_in_hand(&receipt, *holder) {
                    outcome.stale += 1;
                    return;
                }
                let mut letters = store.shelf.lock();
                if letters.len() >= store.capacity {
                    outcome.kept.push((receipt, Verdict::DeadLetter(letter)));
                } else {
                    letters.push(DeadMessage::new(
                        &held.message(receipt.slot),
                        *letter,
                        store.kind.clone(),
                    ));
                    held.ack(&receipt, *holder);
                    held.counts.dead += 1;
                    outcome.left = true;
                }
            }
            _ if !held.hand_in(&receipt, *holder) => outcome.stale += 1,
            Verdict::Retry { after } => {
                held.enqueue(receipt.slot, after);
                held.counts.retried += 1;
                outcome.returned = true;
            }
            Verdict::Return { attempts } => {
                held.put_back_after(receipt.slot, attempts);
                held.counts.retried += 1;
                outcome.returned = true;
            }
            // Release, and what a later version of the contract may add: it stays undone, so it is given back.
            _ => {
                held.put_back(receipt.slot, false);
                held.counts.released += 1;
                outcome.returned = true;
            }
        }
    }
}

/// What became of the receipts of one call, the acks aside.
#[derive(Default)]
struct Outcome {
    stale: usize,
    /// Some message left the queue.
    left: bool,
    /// Some message is to be delivered again.
    returned: bool,
    /// Not settled, for want of room among the dead letters.
    kept: Vec<(MemoryReceipt, Verdict)>,
}

#[cold]
fn too_many_dead(name: &str, capacity: usize) -> TransportError {
    TransportError::new(
        ErrorKind::Busy,
        format!(
            "`{name}` already keeps {capacity} dead letters, its capacity; take them out with \
             `MemoryBroker::take_dead_letters`, or raise `MemoryBroker::capacity`"
        ),
    )
}

impl Settle for MemorySettle {
    type Receipt = MemoryReceipt;

    async fn settle(&mut self, finished: &mut Vec<(MemoryReceipt, Verdict)>) -> Result<Settled, TransportError> {
        if let Err(error) = self.subscription.shared.faults.check(Operation::Settle) {
            self.subscription.store.lock().counts.settle_calls += 1;
            return Err(error);
        }
        self.settle_now(finished)
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        let Subscription {
            shared,
            store,
            holder,
            lease,
        } = &*self.subscription;
        shared.faults.check(Operation::Renew)?;
        let mut held = store.lock();
        held.counts.renew_calls += 1;
        held.renew(*holder, lease.unwrap_or(Duration::MAX), lost);
        let more = held.ready() > 0;
        drop(held);
        if more {
            store.arrivals.one();
        }
        Ok(())
    }
}

impl Drop for MemorySettle {
    fn drop(&mut self) {
        self.subscription.give_back();
    }
}
