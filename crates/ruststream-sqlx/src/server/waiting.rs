//! Claims that found nothing, and what lets them be tried again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{News, SOME};
use crate::operation::Claim;

struct WaitingClaim {
    claim: Claim,
    /// When the first row of its queue is due, as far as is known.
    due: Option<Instant>,
    /// The news of its queue that it has seen.
    seen: u64,
}

/// A claim to be run.
pub(super) struct Ready {
    pub(super) claim: Claim,
    /// Whether there may be more rows than it takes, so that the next claim of its queue is to be woken when it is filled.
    pub(super) wakes_next: bool,
}

impl Ready {
    pub(super) fn new(claim: Claim) -> Self {
        Self {
            claim,
            wakes_next: false,
        }
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

    /// `seen` is what the news of its queue said before it found nothing; `due` in how many milliseconds a row is due.
    pub(super) fn add(&mut self, claim: Claim, seen: u64, due: Option<i64>) {
        if self.claims.is_empty() {
            self.schedule_poll();
        }
        let due = due.map(after);
        self.claims.push(WaitingClaim { claim, due, seen });
    }

    /// Until when to wait.
    pub(super) fn until(&self) -> Instant {
        let due = self.claims.iter().filter_map(|waiting| waiting.due).min();
        due.map_or(self.next_poll, |due| due.min(self.next_poll))
    }

    /// True once in an interval.
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

    /// The queues that someone waits for, each once.
    pub(super) fn queues(&self) -> Vec<Arc<str>> {
        let mut queues: Vec<Arc<str>> = self
            .claims
            .iter()
            .flat_map(|waiting| waiting.claim.shared.iter().chain([&waiting.claim.queue]))
            .map(Arc::clone)
            .collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Takes note of when the first row of a queue is due.
    pub(super) fn note(&mut self, queue: &Arc<str>, due: Option<i64>) {
        let due = due.map(after);
        for waiting in &mut self.claims {
            if waiting.claim.queue == *queue && (waiting.claim.shared.is_none() || due.is_some()) {
                waiting.due = due;
            }
            if due.is_some() && waiting.claim.shared.as_ref() == Some(queue) {
                waiting.due = waiting.due.min(due).or(due);
            }
        }
    }

    /// Takes as many claims as the news can fill, those that wait longest first.
    pub(super) fn take_news(&mut self, news: &News, into: &mut VecDeque<Ready>) {
        // What was promised to one claim is no news for the next of its queue.
        let mut promised: Vec<(Arc<str>, u64)> = Vec::new();
        self.take_where(into, |waiting| {
            let shared = waiting.claim.shared.as_ref().map_or(0, |queue| news.count(queue));
            let count = news.count(&waiting.claim.queue).wrapping_add(shared);
            let rows = count.wrapping_sub(waiting.seen);
            if rows == 0 {
                return None;
            }
            let index = promised.iter().position(|(queue, _)| *queue == waiting.claim.queue);
            let index = index.unwrap_or_else(|| {
                promised.push((Arc::clone(&waiting.claim.queue), 0));
                promised.len() - 1
            });
            waiting.seen = count;
            if promised[index].1 >= rows {
                return None;
            }
            let unknown = rows >= SOME as u64;
            promised[index].1 += if unknown { rows } else { waiting.claim.room as u64 };
            Some(unknown)
        });
    }

    /// Takes the claims for which a row is due, one for each queue: the next is woken by the first that is filled.
    pub(super) fn take_due(&mut self, into: &mut VecDeque<Ready>) {
        let now = Instant::now();
        let mut taken: Vec<Arc<str>> = Vec::new();
        self.take_where(into, |waiting| {
            let due = waiting.due.is_some_and(|due| due <= now) && !taken.contains(&waiting.claim.queue);
            due.then(|| {
                taken.push(Arc::clone(&waiting.claim.queue));
                true
            })
        });
        // The others of those queues: whoever goes before them finds out when the next row is due.
        for waiting in &mut self.claims {
            if taken.contains(&waiting.claim.queue) {
                waiting.due = None;
            }
        }
    }

    /// Takes the claim of a queue that waits longest.
    pub(super) fn take_next(&mut self, queue: &Arc<str>, into: &mut VecDeque<Ready>) {
        let mut found = false;
        self.take_where(into, |waiting| {
            let wanted = !found && waiting.claim.queue == *queue;
            found |= wanted;
            wanted.then_some(true)
        });
    }

    /// Takes all claims.
    pub(super) fn take_all(&mut self, into: &mut VecDeque<Ready>) {
        self.take_where(into, |_| Some(false));
    }

    /// Forgets the claim of a subscription.
    pub(super) fn cancel(&mut self, subscription: u64) {
        self.claims.retain(|waiting| waiting.claim.subscription != subscription);
    }

    /// Takes the claims for which there is an answer: whether it wakes the next.
    fn take_where(&mut self, into: &mut VecDeque<Ready>, mut wanted: impl FnMut(&mut WaitingClaim) -> Option<bool>) {
        let mut left = Vec::with_capacity(self.claims.len());
        for mut waiting in self.claims.drain(..) {
            // A claim whose subscription is gone is dropped on the way.
            if waiting.claim.reply.is_closed() {
                continue;
            }
            match wanted(&mut waiting) {
                Some(wakes_next) => into.push_back(Ready {
                    claim: waiting.claim,
                    wakes_next,
                }),
                None => left.push(waiting),
            }
        }
        self.claims = left;
    }
}

/// A millisecond more, so that nothing is looked for too early.
fn after(millis: i64) -> Instant {
    /// The longest sleep: a clock may jump, and the poll looks at it.
    const LONGEST: Duration = Duration::from_mins(1);
    let millis = millis.saturating_add(1).max(0).cast_unsigned();
    Instant::now() + Duration::from_millis(millis).min(LONGEST)
}
