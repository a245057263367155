//! Claims that found nothing, and what lets them be tried again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::operation::Claim;

/// The longest sleep until a due row: the clock may jump, and the poll looks at it.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

struct WaitingClaim {
    claim: Claim,
    /// When the first row of its queue is due, as far as is known.
    next_due: Option<i64>,
}

impl WaitingClaim {
    /// Whether messages of this queue may be for it.
    fn reads(&self, queue: &Arc<str>) -> bool {
        self.claim.queue == *queue || self.claim.shared.as_ref() == Some(queue)
    }
}

/// The claims that wait.
pub(super) struct Waiting {
    claims: Vec<WaitingClaim>,
    poll_interval: Duration,
    next_poll: Instant,
}

impl Waiting {
    pub(super) fn new(poll_interval: Duration) -> Self {
        Self {
            claims: Vec::new(),
            poll_interval,
            next_poll: Instant::now(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(super) fn add(&mut self, claim: Claim, next_due: Option<i64>) {
        if self.claims.is_empty() {
            self.schedule_poll();
        }
        self.claims.push(WaitingClaim { claim, next_due });
    }

    /// Until when to wait; `None` where only an operation can bring news.
    pub(super) fn pause(&self, now: i64) -> Option<Instant> {
        let first = self.claims.iter().filter_map(|waiting| waiting.next_due).min();
        if self.claims.is_empty() {
            return None;
        }
        let due = first.map(|due| {
            let millis = due.saturating_sub(now).max(0).cast_unsigned();
            Instant::now() + Duration::from_millis(millis).min(LONGEST_PAUSE)
        });
        Some(due.map_or(self.next_poll, |due| due.min(self.next_poll)))
    }

    /// True once in an interval: it is time to ask whether another process wrote.
    pub(super) fn poll_is_due(&mut self) -> bool {
        let due = !self.claims.is_empty() && Instant::now() >= self.next_poll;
        if due {
            self.schedule_poll();
        }
        due
    }

    /// A fifth of jitter, so that processes do not look in step.
    fn schedule_poll(&mut self) {
        let interval = self.poll_interval.as_micros() as u64;
        let jittered = interval - interval / 5 + fastrand::u64(0..=interval * 2 / 5);
        self.next_poll = Instant::now() + Duration::from_micros(jittered);
    }

    /// Notes that a row of `queue` is due then.
    pub(super) fn note(&mut self, queue: &Arc<str>, due: i64) {
        for waiting in &mut self.claims {
            if waiting.reads(queue) {
                waiting.next_due = Some(waiting.next_due.map_or(due, |known| known.min(due)));
            }
        }
    }

    /// Takes as many claims of `queue` as `rows` new rows can fill, longest waiting first.
    pub(super) fn take_for(&mut self, queue: &Arc<str>, mut rows: usize, into: &mut Vec<Claim>) {
        self.take_where(into, |waiting| {
            let wanted = rows > 0 && waiting.reads(queue);
            // Each group gets what is published to the queue.
            let shared = waiting.claim.shared.as_ref() == Some(queue);
            if wanted && !shared && !waiting.claim.reply.is_closed() {
                rows = rows.saturating_sub(waiting.claim.room);
            }
            wanted
        });
    }

    /// Takes the claims for which a row is due.
    pub(super) fn take_due(&mut self, now: i64, into: &mut Vec<Claim>) {
        self.take_where(into, |waiting| waiting.next_due.is_some_and(|due| due <= now));
    }

    /// Takes all claims.
    pub(super) fn take_all(&mut self, into: &mut Vec<Claim>) {
        self.take_where(into, |_| true);
    }

    /// Forgets the claim of a subscription.
    pub(super) fn cancel(&mut self, subscription: u64) {
        self.claims.retain(|waiting| waiting.claim.subscription != subscription);
    }

    fn take_where(&mut self, into: &mut Vec<Claim>, mut wanted: impl FnMut(&WaitingClaim) -> bool) {
        // A claim whose subscription is gone is dropped on the way.
        let taken = self
            .claims
            .extract_if(.., |waiting| waiting.claim.reply.is_closed() || wanted(waiting));
        into.extend(
            taken
                .map(|waiting| waiting.claim)
                .filter(|claim| !claim.reply.is_closed()),
        );
    }
}
