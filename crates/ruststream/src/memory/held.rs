//! What one queue holds: the messages that are ready, delayed and in hand, and the moves between these.
//!
//! Every message has a slot until it is settled. Queues of slot numbers say what is ready and what is delayed, and a slot
//! that is in neither and not free is in hand. So a fetch moves a number and shares a pointer, an ack frees a number, and a
//! slot's buffers serve the next message.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::delivery::{MemoryDelivery, MemoryReceipt, Message};
use super::inspect::Counts;
use crate::message::Outgoing;

/// Which subscription has a message in hand.
pub(super) type Holder = u32;

/// No subscription: the message is ready, delayed, or the slot is free.
const NO_ONE: Holder = 0;

/// A delay beyond this is as good as for ever, and stays inside what an `Instant` can say.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

struct Slot {
    message: Arc<Message>,
    /// The place in the order of the queue; given when the message becomes ready.
    place: u64,
    /// Counts the ends of deliveries, so that an older receipt is known as stale.
    generation: u32,
    holder: Holder,
    attempts: u32,
    /// It was taken back from a holder that never settled it.
    unfinished: bool,
    heavy: bool,
    lease_end: Option<Instant>,
}

/// What one queue holds.
#[derive(Default)]
pub(super) struct Held {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// In ascending order of their places.
    ready: VecDeque<u32>,
    delayed: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    next_place: u64,
    last_holder: Holder,
    /// No lease ends before this.
    lease_end: Option<Instant>,
    /// Leases that ended before their holder settled, until the holder asks.
    lost: Vec<(Holder, u64)>,
    /// Counts the cuts of the link.
    pub(super) cuts: u64,
    /// A subscription was opened on it.
    pub(super) opened: bool,
    /// Its only subscription ended: nothing more is stored.
    pub(super) gone: bool,
    pub(super) counts: Counts,
}

impl Held {
    /// How many messages are held: ready, delayed or in hand.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn new_holder(&mut self) -> Holder {
        self.last_holder += 1;
        self.last_holder
    }

    /// Stores a message.
    #[inline]
    pub(super) fn put(&mut self, outgoing: &Outgoing<'_>, destination: &Arc<str>, published_at: SystemTime) {
        let slot = if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            match Arc::get_mut(&mut place.message) {
                Some(message) => message.refill(outgoing, destination, published_at),
                // A delivery whose lease was lost still reads it.
                None => place.message = Arc::new(Message::new(outgoing, destination, published_at)),
            }
            place.heavy = place.message.is_heavy();
            slot
        } else {
            let message = Message::new(outgoing, destination, published_at);
            let slot = u32::try_from(self.slots.len()).expect("a queue holds fewer than 2^32 messages");
            self.slots.push(Slot {
                heavy: message.is_heavy(),
                message: Arc::new(message),
                place: 0,
                generation: 0,
                holder: NO_ONE,
                attempts: 0,
                unfinished: false,
                lease_end: None,
            });
            slot
        };
        self.counts.published += 1;
        self.enqueue(slot, outgoing.delay());
    }

    /// Puts a message at the end of what is ready, now or after a delay.
    #[inline]
    pub(super) fn enqueue(&mut self, slot: u32, after: Duration) {
        let place = self.next_place;
        self.next_place += 1;
        if after.is_zero() {
            self.slots[slot as usize].place = place;
            self.ready.push_back(slot);
        } else {
            let due = Instant::now() + after.min(LONGEST);
            self.delayed.push(Reverse((due, place, slot)));
        }
    }

    /// Hands out up to `room` messages.
    #[inline]
    pub(super) fn take(
        &mut self,
        holder: Holder,
        lease: Option<Duration>,
        room: usize,
        into: &mut Vec<MemoryDelivery>,
    ) -> usize {
        if self.lease_end.is_some() || !self.delayed.is_empty() {
            self.advance(Instant::now());
        }
        let count = room.min(self.ready.len());
        if count == 0 {
            return 0;
        }
        let slots = &mut self.slots;
        let lease_end = lease.map(|lease| Instant::now() + lease.min(LONGEST));
        into.extend(self.ready.range(..count).map(|&number| {
            let slot = &mut slots[number as usize];
            let attempt = slot.attempts.saturating_add(1);
            slot.attempts = attempt;
            slot.holder = holder;
            slot.lease_end = lease_end;
            let unfinished = u32::from(std::mem::take(&mut slot.unfinished));
            MemoryDelivery {
                message: Arc::clone(&slot.message),
                receipt: MemoryReceipt {
                    slot: number,
                    generation: slot.generation,
                },
                attempt,
                unfinished,
            }
        }));
        self.ready.drain(..count);
        self.lease_end = earlier(self.lease_end, lease_end);
        self.counts.delivered += count as u64;
        count
    }

    /// Whether the message of a receipt is still in its holder's hand.
    pub(super) fn is_in_hand(&self, receipt: &MemoryReceipt, holder: Holder) -> bool {
        let slot = self.slots.get(receipt.slot as usize);
        slot.is_some_and(|slot| slot.generation == receipt.generation && slot.holder == holder)
    }

    /// Takes a message out of its holder's hand and lets go of it; false if the receipt is stale.
    #[inline]
    pub(super) fn ack(&mut self, receipt: &MemoryReceipt, holder: Holder) -> bool {
        let Some(slot) = Self::in_hand(&mut self.slots, receipt, holder) else {
            return false;
        };
        slot.attempts = 0;
        if slot.heavy {
            Self::lighten(slot);
        }
        self.free.push(receipt.slot);
        true
    }

    /// Takes a message out of its holder's hand; false if the receipt is stale.
    pub(super) fn hand_in(&mut self, receipt: &MemoryReceipt, holder: Holder) -> bool {
        Self::in_hand(&mut self.slots, receipt, holder).is_some()
    }

    #[inline]
    fn in_hand<'a>(slots: &'a mut [Slot], receipt: &MemoryReceipt, holder: Holder) -> Option<&'a mut Slot> {
        let slot = slots.get_mut(receipt.slot as usize)?;
        if slot.generation != receipt.generation || slot.holder != holder {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.holder = NO_ONE;
        Some(slot)
    }

    #[cold]
    fn lighten(slot: &mut Slot) {
        let destination = Arc::clone(&slot.message.origin.destination);
        let nothing = Outgoing::new("", &[]);
        slot.message = Arc::new(Message::new(&nothing, &destination, SystemTime::UNIX_EPOCH));
        slot.heavy = false;
    }

    /// Puts a message that was handed in back to its old place.
    pub(super) fn put_back(&mut self, number: u32, attempt_counts: bool) {
        let slot = &mut self.slots[number as usize];
        if !attempt_counts {
            slot.attempts = slot.attempts.saturating_sub(1);
        }
        let place = slot.place;
        let position = self
            .ready
            .partition_point(|&other| self.slots[other as usize].place < place);
        self.ready.insert(position, number);
    }

    /// Puts a message back in its place, with so many attempts counted.
    pub(super) fn put_back_after(&mut self, number: u32, attempts: u32) {
        self.slots[number as usize].attempts = attempts;
        self.put_back(number, true);
    }

    /// The message in a slot.
    pub(super) fn message(&self, number: u32) -> Arc<Message> {
        Arc::clone(&self.slots[number as usize].message)
    }

    /// Puts back all that these holders have in hand; the attempts count. True if there was something.
    pub(super) fn take_from(&mut self, whose: impl Fn(Holder) -> bool) -> bool {
        self.take_back(|slot| whose(slot.holder))
    }

    fn take_back(&mut self, which: impl Fn(&Slot) -> bool) -> bool {
        let mut back = Vec::new();
        for (number, slot) in (0u32..).zip(&mut self.slots) {
            if slot.holder != NO_ONE && which(slot) {
                if slot.lease_end.is_some() {
                    let receipt = MemoryReceipt {
                        slot: number,
                        generation: slot.generation,
                    };
                    self.lost.push((slot.holder, receipt.lease_id()));
                }
                slot.generation = slot.generation.wrapping_add(1);
                slot.holder = NO_ONE;
                slot.unfinished = true;
                back.push((slot.place, number));
            }
        }
        // The last first: each finds its place near the front.
        back.sort_unstable_by(|one, other| other.cmp(one));
        for &(_, number) in &back {
            self.put_back(number, true);
        }
        !back.is_empty()
    }

    /// Makes ready what is due and what is in hand under an ended lease.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(&Reverse((due, _, slot))) = self.delayed.peek() {
            if due > now {
                break;
            }
            self.delayed.pop();
            self.enqueue(slot, Duration::ZERO);
        }
        if self.lease_end.is_some_and(|end| end <= now) {
            self.take_back(|slot| slot.lease_end.is_some_and(|end| end <= now));
            self.find_lease_end();
        }
    }

    /// Whether any lease may have ended.
    pub(super) fn has_leases(&self) -> bool {
        self.lease_end.is_some()
    }

    fn find_lease_end(&mut self) {
        self.lease_end = self
            .slots
            .iter()
            .filter(|slot| slot.holder != NO_ONE)
            .fold(None, |end, slot| earlier(end, slot.lease_end));
    }

    /// Renews the leases of a holder, and tells it which it lost.
    pub(super) fn renew(&mut self, holder: Holder, lease: Duration, lost: &mut Vec<u64>) {
        let now = Instant::now();
        self.advance(now);
        let end = now + lease.min(LONGEST);
        for slot in self.slots.iter_mut().filter(|slot| slot.holder == holder) {
            slot.lease_end = Some(end);
        }
        self.find_lease_end();
        self.lost.retain(|&(whose, id)| {
            if whose == holder {
                lost.push(id);
            }
            whose != holder
        });
    }

    /// Forgets a holder, and puts back what it has in hand. True if there was something.
    pub(super) fn end(&mut self, holder: Holder) -> bool {
        let any = self.take_from(|whose| whose == holder);
        self.lost.retain(|&(whose, _)| whose != holder);
        any
    }

    /// When something happens without a call: a delay or a lease ends.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let due = self.delayed.peek().map(|&Reverse((due, _, _))| due);
        earlier(due, self.lease_end)
    }

    /// How many messages wait for their time.
    #[cfg(feature = "testing")]
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// How many messages are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// What is ready, in order, then what is delayed, the next due first; with the attempts made.
    pub(super) fn standing(&mut self) -> Vec<(Arc<Message>, u32)> {
        self.advance(Instant::now());
        let mut delayed: Vec<_> = self.delayed.iter().map(|entry| entry.0).collect();
        delayed.sort_unstable();
        let delayed = delayed.into_iter().map(|(_, _, slot)| slot);
        self.ready
            .iter()
            .copied()
            .chain(delayed)
            .map(|number| {
                let slot = &self.slots[number as usize];
                (Arc::clone(&slot.message), slot.attempts)
            })
            .collect()
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
