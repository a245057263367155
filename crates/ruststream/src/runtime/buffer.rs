//! Where the parts of a subscription meet: what waits, what is in the hands of workers, what is finished.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::time::{Duration, Instant};

use super::entry::{Confirming, Entry, Kept, incoming};
use super::judge::{Decision, judge, outlived};
use super::queue::Queue;
use super::room::{self, InHand};
use super::shared::{Counts, Shared};
use super::slot::Slot;
use crate::handler::{Ended, Failure, FailureKind, Outcome};
use crate::transport::{Delivery, Verdict};

/// The meeting place of one subscription's parts.
pub(super) struct Buffer<D: Delivery> {
    pub(super) shared: Arc<Shared>,
    began: Instant,
    queue: Mutex<Queue<D>>,
    finished: Mutex<Finished<D>>,
    /// Messages in the hands of workers.
    taken: AtomicUsize,
    /// Messages fetched and not settled.
    unsettled: AtomicUsize,
    /// As `Queue::closed`, to be read without the lock.
    closed: AtomicBool,
    /// The fetcher waits until there is room.
    starved: AtomicBool,
    slots: Box<[Slot<D>]>,
}

/// What is finished and waits for the settler.
pub(super) struct Finished<D: Delivery> {
    pub(super) settled: Vec<(D::Receipt, Verdict)>,
    pub(super) confirming: Vec<Confirming<D>>,
    /// Nothing more will come.
    sealed: bool,
}

/// What a worker gets when it asks.
pub(super) enum Take {
    Taken {
        /// The fetcher was woken, and stands where no other thread finds it until this one turns to it.
        woke_fetcher: bool,
    },
    /// Nothing yet; if there is a time, something will be ready then.
    Wait(Option<Instant>),
    Closed,
}

impl<D: Delivery> Buffer<D> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let slots = (0..shared.settings.workers).map(|_| Slot::new()).collect();
        Self {
            began: Instant::now(),
            queue: Mutex::new(Queue::new(shared.settings.batch)),
            finished: Mutex::new(Finished {
                settled: Vec::new(),
                confirming: Vec::new(),
                sealed: false,
            }),
            taken: AtomicUsize::new(0),
            unsettled: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            slots,
            shared,
        }
    }

    /// The milliseconds since the subscription began, wrapping around.
    fn millis(&self) -> u32 {
        self.began.elapsed().as_millis() as u32
    }

    fn queue(&self) -> MutexGuard<'_, Queue<D>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finished(&self) -> MutexGuard<'_, Finished<D>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn slot(&self, worker: usize) -> &Slot<D> {
        &self.slots[worker]
    }

    /// How many messages may be fetched now. After a zero, the signal `room` tells when to ask again.
    pub(super) fn room(&self) -> usize {
        // Set before looking: what changes in between is signalled and looked at again.
        self.starved.store(true, Ordering::Release);
        let queue = self.queue();
        let in_hand = InHand {
            all: self.unsettled.load(Ordering::Relaxed),
            ready: queue.ready.len(),
            taken: self.taken.load(Ordering::Relaxed),
            mean_bytes: queue.mean_bytes,
        };
        drop(queue);
        let room = room::room(&self.shared.settings, self.shared.service_time(), in_hand);
        if room > 0 {
            self.starved.store(false, Ordering::Relaxed);
        }
        room
    }

    /// Takes in what was fetched.
    pub(super) fn push(&self, chunk: &mut Vec<D>) {
        let fetched = chunk.len();
        self.unsettled.fetch_add(fetched, Ordering::Relaxed);
        self.shared.counts.in_hand.fetch_add(fetched as u64, Ordering::Relaxed);
        let arrived = self.millis();
        let most = self.shared.settings.retry.most_attempts();
        let (mut bytes, mut outlived) = (0, false);
        for delivery in &*chunk {
            bytes += delivery.payload().len();
            outlived |= delivery.attempt() > most;
        }
        if outlived {
            self.give_up_the_outlived(chunk, most, arrived);
        }
        // The key is the user's code: it runs outside the lock, and its panic costs the order of that message alone.
        let lanes: Vec<Option<NonZeroU64>> = match &self.shared.settings.ordered_by {
            None => Vec::new(),
            Some(order) => chunk
                .iter()
                .map(|delivery| {
                    catch_unwind(AssertUnwindSafe(|| order.lane_of(&incoming(delivery)))).unwrap_or_else(|_| {
                        tracing::error!(subscription = %self.shared.name, "the key of a message panicked; it keeps no order");
                        None
                    })
                })
                .collect(),
        };
        let mut queue = self.queue();
        queue.mean_bytes = (queue.mean_bytes * 3 + bytes / fetched.max(1)) / 4;
        if queue.closed {
            drop(queue);
            self.release(chunk.drain(..).map(|delivery| Entry::new(delivery, None, arrived)));
            return;
        }
        if lanes.is_empty() {
            queue
                .ready
                .extend(chunk.drain(..).map(|delivery| Entry::new(delivery, None, arrived)));
        } else {
            for (delivery, lane) in chunk.drain(..).zip(lanes) {
                queue.push(Entry::new(delivery, lane, arrived));
            }
        }
        let hands = room::hands(&self.shared.settings, self.shared.service_time(), fetched);
        queue.wake(hands);
    }

    /// Makes dead letters of what was delivered more often than any policy grants.
    #[cold]
    fn give_up_the_outlived(&self, chunk: &mut Vec<D>, most: u32, arrived: u32) {
        for delivery in chunk.extract_if(.., |delivery| delivery.attempt() > most && delivery.is_unfinished()) {
            let entry = Entry::new(delivery, None, arrived);
            let decision = outlived(&self.shared, &entry.incoming());
            self.take_again();
            self.carry_out(entry, decision);
        }
    }

    /// Whether nothing is ready.
    pub(super) fn is_idle(&self) -> bool {
        self.queue().ready.len() == 0
    }

    /// Moves up to as many ready messages as a worker should take at once into `into`.
    pub(super) fn take(&self, into: &mut VecDeque<Entry<D>>, worker: usize, waker: &Waker) -> Take {
        let settings = &self.shared.settings;
        let mut queue = self.queue();
        let number = match (settings.batch, queue.ready.front()) {
            (_, None) => 0,
            (None, Some(_)) => room::at_once(settings, self.shared.service_time(), queue.ready.len()),
            (Some(batch), Some(first)) => {
                let age = Duration::from_millis(u64::from(self.millis().wrapping_sub(first.arrived)));
                let due = Instant::now() + batch.age.saturating_sub(age);
                let together = queue.together(batch.size);
                let may_grow = together < batch.size && together == queue.ready.len() && first.is_first();
                if may_grow && !queue.closed && age < batch.age {
                    queue.wait(worker, waker);
                    drop(queue);
                    self.want_room();
                    return Take::Wait(Some(due));
                }
                together
            }
        };
        if number == 0 {
            if queue.closed {
                return Take::Closed;
            }
            queue.wait(worker, waker);
            drop(queue);
            self.want_room();
            return Take::Wait(None);
        }
        queue.ready.take(number, into);
        let left = queue.ready.len();
        let mean_bytes = queue.mean_bytes;
        // What is left is worth another worker's waking, or else this one comes back for it; `give_back` sees to it that it does not
        // wait for a call that waits.
        if left > 0 && (settings.batch.is_some() || room::hands(settings, self.shared.service_time(), left) > 1) {
            queue.wake(1);
        }
        drop(queue);
        let taken = self.taken.fetch_add(number, Ordering::Relaxed) + number;
        let wanted = left <= room::target(settings, self.shared.service_time(), mean_bytes).saturating_sub(taken) / 2;
        Take::Taken {
            woke_fetcher: wanted && self.want_room(),
        }
    }

    /// Wakes the fetcher, if it waits for room; true if it did.
    fn want_room(&self) -> bool {
        let starved = self.starved.swap(false, Ordering::AcqRel);
        if starved {
            self.shared.signals.room.notify_one();
        }
        starved
    }

    /// Puts messages that a worker took and did not begin back in front, for others.
    pub(super) fn give_back(&self, untouched: &mut VecDeque<Entry<D>>) {
        let number = untouched.len();
        self.taken.fetch_sub(number, Ordering::Relaxed);
        let mut queue = self.queue();
        if queue.closed {
            drop(queue);
            self.release(untouched.drain(..));
            return;
        }
        while let Some(entry) = untouched.pop_back() {
            queue.ready.push_front(entry);
        }
        let ready = queue.ready.len();
        queue.wake(number.max(1).min(ready));
    }

    /// Lets the next message of a lane go, once the one before it has left.
    pub(super) fn leave_lane(&self, lane: NonZeroU64) {
        self.queue().leave_lane(lane);
    }

    /// Keeps a message unsettled in hand, to be handled again after `wait`. Its lane stays taken.
    fn keep(&self, mut entry: Entry<D>, wait: Duration) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        entry.delivery.attempt_failed();
        entry.kept_attempts = entry.kept_attempts.saturating_add(1);
        self.keep_until(Kept::Entry(entry), wait);
    }

    /// Keeps a message unsettled in hand until its dead letter is tried again, after `wait`.
    pub(super) fn confirm_later(&self, confirming: Confirming<D>, wait: Duration) {
        self.keep_until(Kept::Confirming(confirming), wait);
    }

    fn keep_until(&self, kept: Kept<D>, wait: Duration) {
        let mut queue = self.queue();
        if queue.closed {
            drop(queue);
            self.give_back_kept(std::iter::once(kept));
            return;
        }
        queue.keep(kept, wait);
        drop(queue);
        self.shared.signals.held.notify_one();
        self.want_room();
    }

    /// Takes up again what was kept until now; answers when the next is due.
    pub(super) fn resume_kept(&self) -> Option<Instant> {
        let (mut confirming, next) = self.queue().resume_kept();
        if !confirming.is_empty() {
            self.finished().confirming.append(&mut confirming);
            self.shared.signals.finished.notify_one();
        }
        next
    }

    /// Gives back what was kept, because this app stops. A message whose dead letter could not be stored counts as attempted, so
    /// that whoever gets it next gives it up without handling it.
    fn give_back_kept(&self, kept: impl Iterator<Item = Kept<D>>) {
        let given_back = kept.map(|kept| match kept {
            Kept::Entry(entry) => entry.given_back(),
            Kept::Confirming(Confirming { entry, .. }) => {
                let attempts = entry.attempt();
                (entry.delivery.into_receipt(), Verdict::Return { attempts })
            }
        });
        self.finished().settled.extend(given_back);
        self.shared.signals.finished.notify_one();
    }

    /// Takes in what a worker finished, and what is settled once something is confirmed.
    pub(super) fn finish(&self, settled: &mut Vec<(D::Receipt, Verdict)>, confirming: &mut Vec<Confirming<D>>) {
        self.taken
            .fetch_sub(settled.len() + confirming.len(), Ordering::Relaxed);
        let mut finished = self.finished();
        hand_over(settled, &mut finished.settled);
        hand_over(confirming, &mut finished.confirming);
        drop(finished);
        self.shared.signals.finished.notify_one();
    }

    /// Takes in a message that a worker finished and that is settled once something is confirmed.
    fn confirm(&self, confirming: Confirming<D>) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.finished().confirming.push(confirming);
        self.shared.signals.finished.notify_one();
    }

    /// Counts a message as in a worker's hands again, before it is kept or confirmed a second time.
    pub(super) fn take_again(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Does what was decided about a message that a worker had in its hands.
    pub(super) fn carry_out(&self, mut entry: Entry<D>, decision: Decision) {
        match decision {
            // Out of any lane, it passes no one: its transport keeps the delay, if it can.
            Decision::Keep(after) if entry.lane.is_none() && self.shared.capabilities.delay() => {
                self.carry_out(entry, Decision::Settle(Verdict::Retry { after }));
            }
            Decision::Settle(verdict) => {
                self.taken.fetch_sub(1, Ordering::Relaxed);
                let lane = entry.lane();
                let (receipt, verdict) = match verdict {
                    Verdict::Release => entry.given_back(),
                    verdict => (entry.delivery.into_receipt(), verdict),
                };
                self.settle_one(receipt, verdict);
                if let Some(lane) = lane {
                    self.leave_lane(lane);
                }
            }
            Decision::Discard => {
                entry.delivery.attempt_failed();
                self.carry_out(entry, Decision::Settle(Verdict::Ack));
            }
            Decision::Keep(wait) => self.keep(entry, wait),
            Decision::Confirm(messages, purpose) => self.confirm(Confirming::new(entry, messages, purpose)),
        }
    }

    /// Judges what a worker was about when it panicked.
    pub(super) fn judge_wreck(&self, wreck: Vec<Entry<D>>, text: &str) {
        for entry in wreck {
            let panicked = Outcome::Failed(Box::new(Failure::new(FailureKind::Panic, text)));
            let decision = judge(&self.shared, &entry.incoming(), Ended::Said(panicked));
            self.carry_out(entry, decision);
        }
    }

    fn settle_one(&self, receipt: D::Receipt, verdict: Verdict) {
        self.finished().settled.push((receipt, verdict));
        self.shared.signals.finished.notify_one();
    }

    fn release(&self, entries: impl Iterator<Item = Entry<D>>) {
        self.finished().settled.extend(entries.map(Entry::given_back));
        self.shared.signals.finished.notify_one();
    }

    /// Swaps what is finished with the empty lists of the settler; true once nothing more will come.
    pub(super) fn swap_finished(
        &self,
        settled: &mut Vec<(D::Receipt, Verdict)>,
        confirming: &mut Vec<Confirming<D>>,
    ) -> bool {
        let mut finished = self.finished();
        std::mem::swap(&mut finished.settled, settled);
        std::mem::swap(&mut finished.confirming, confirming);
        finished.sealed
    }

    /// Takes note that messages are settled, or given up.
    pub(super) fn settled(&self, number: usize) {
        if number > 0 {
            self.unsettled.fetch_sub(number, Ordering::Relaxed);
            self.shared.counts.in_hand.fetch_sub(number as u64, Ordering::Relaxed);
            self.want_room();
        }
    }

    /// Releases all that no worker has begun, and takes in no more. A message that was kept for a retry keeps its attempt.
    pub(super) fn close(&self) {
        let mut queue = self.queue();
        self.closed.store(true, Ordering::Relaxed);
        let (ready, kept) = queue.close();
        drop(queue);
        self.release(ready);
        self.give_back_kept(kept);
    }

    /// Says that nothing more will be finished.
    pub(super) fn seal(&self) {
        self.finished().sealed = true;
        self.shared.signals.finished.notify_one();
    }

    /// Drops what lost its lease and was not begun, and cancels the token of what is being handled.
    pub(super) fn lost(&self, leases: &[u64]) {
        for slot in &self.slots {
            slot.lost(leases);
        }
        let number = self.queue().lost(leases);
        Counts::add(&self.shared.counts.stale, number);
        self.settled(number);
    }
}

/// Moves all of one list to the end of another; into an empty one without a copy. Where there is nothing to move, each keeps its
/// buffer.
fn hand_over<T>(from: &mut Vec<T>, into: &mut Vec<T>) {
    if into.is_empty() && !from.is_empty() {
        std::mem::swap(from, into);
    } else {
        into.append(from);
    }
}
