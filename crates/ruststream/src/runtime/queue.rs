//! What waits in a subscription: for a worker, for the end of its lane, for its time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::num::NonZeroU64;
use std::task::Waker;

use tokio::time::{Duration, Instant};

use super::entry::{Confirming, Entry, Kept};
use super::ready::Ready;
use super::settings::{Batch, LONGEST};
use crate::transport::Delivery;

/// What waits for a worker, its lane or its time, and the workers that wait.
pub(super) struct Queue<D: Delivery> {
    pub(super) ready: Ready<Entry<D>>,
    /// The lanes that have a message ready, in a worker's hand or kept; the rest of each waits here.
    lanes: HashMap<NonZeroU64, VecDeque<Entry<D>>>,
    kept: BTreeMap<(Instant, u64), Kept<D>>,
    kept_so_far: u64,
    /// Workers that wait for a message.
    idle: Vec<(usize, Waker)>,
    pub(super) closed: bool,
    pub(super) mean_bytes: usize,
}

impl<D: Delivery> Queue<D> {
    pub(super) fn new(batch: Option<Batch>) -> Self {
        Self {
            ready: batch.map_or_else(Ready::default, |batch| Ready::of_batches(batch.size)),
            lanes: HashMap::new(),
            kept: BTreeMap::new(),
            kept_so_far: 0,
            idle: Vec::new(),
            closed: false,
            mean_bytes: 0,
        }
    }

    /// Takes in a message that keeps an order: it waits where one of its lane is before it.
    pub(super) fn push(&mut self, entry: Entry<D>) {
        if let Some(lane) = entry.lane {
            if let Some(waiting) = self.lanes.get_mut(&lane) {
                waiting.push_back(entry);
                return;
            }
            self.lanes.insert(lane, VecDeque::new());
        }
        self.ready.push_back(entry);
    }

    /// How many of the ready messages make a batch. One that was delivered before comes alone: what fails a batch fails by
    /// itself the next time, and the others do not fail with it.
    pub(super) fn together(&self, most: usize) -> usize {
        match self.ready.front() {
            None => 0,
            Some(first) if !first.is_first() => 1,
            Some(_) => self.ready.leading(most, Entry::is_first),
        }
    }

    /// Notes that a worker waits for a message.
    pub(super) fn wait(&mut self, worker: usize, waker: &Waker) {
        self.idle.retain(|(known, _)| *known != worker);
        self.idle.push((worker, waker.clone()));
    }

    /// Wakes up to so many workers.
    pub(super) fn wake(&mut self, number: usize) {
        let number = number.min(self.idle.len());
        for (_, waker) in self.idle.drain(..number) {
            waker.wake();
        }
    }
    /// Lets the next message of a lane go, once the one before it has left.
    pub(super) fn leave_lane(&mut self, lane: NonZeroU64) {
        let Some(waiting) = self.lanes.get_mut(&lane) else {
            return;
        };
        if let Some(next) = waiting.pop_front() {
            self.ready.push_back(next);
            self.wake(1);
        } else {
            self.lanes.remove(&lane);
        }
    }

    /// Keeps a message unsettled in hand for a time.
    pub(super) fn keep(&mut self, kept: Kept<D>, wait: Duration) {
        self.kept_so_far += 1;
        let place = (Instant::now() + wait.min(LONGEST), self.kept_so_far);
        self.kept.insert(place, kept);
    }

    /// Makes ready what was kept until now. Answers what waits for its confirmation instead, and when the next is due.
    pub(super) fn resume_kept(&mut self) -> (Vec<Confirming<D>>, Option<Instant>) {
        let later = self.kept.split_off(&(Instant::now(), u64::MAX));
        let due = mem::replace(&mut self.kept, later);
        let (mut ready, mut confirming) = (0, Vec::new());
        for kept in due.into_values().rev() {
            match kept {
                Kept::Entry(entry) => {
                    self.ready.push_front(entry);
                    ready += 1;
                }
                Kept::Confirming(waiting) => confirming.push(waiting),
            }
        }
        self.wake(ready);
        (confirming, self.kept.first_key_value().map(|((due, _), _)| *due))
    }

    /// Takes in no more, and gives out all it has: what is ready or in a lane, and what is kept.
    pub(super) fn close(
        &mut self,
    ) -> (
        impl Iterator<Item = Entry<D>> + use<D>,
        impl Iterator<Item = Kept<D>> + use<D>,
    ) {
        self.closed = true;
        self.wake(usize::MAX);
        let lanes = mem::take(&mut self.lanes).into_values().flatten();
        let ready = mem::take(&mut self.ready).into_iter().chain(lanes);
        (ready, mem::take(&mut self.kept).into_values())
    }

    /// Drops what lost its lease; answers how many messages that were.
    pub(super) fn lost(&mut self, leases: &[u64]) -> usize {
        let is_lost = |entry: &Entry<D>| leases.contains(&entry.delivery.lease_id());
        let mut gone = self.ready.extract(is_lost);
        let kept = self.kept.extract_if(.., |_, kept| is_lost(kept.entry()));
        gone.extend(kept.map(|(_, kept)| kept.into_entry()));
        let mut waiting_gone = 0;
        for waiting in self.lanes.values_mut() {
            let before = waiting.len();
            waiting.retain(|entry| !is_lost(entry));
            waiting_gone += before - waiting.len();
        }
        for lane in gone.iter().filter_map(Entry::lane) {
            self.leave_lane(lane);
        }
        gone.len() + waiting_gone
    }
}
