//! One worker: what it holds while its handler runs.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::buffer::{Buffer, Take};
use super::entry::{Confirming, Entry, Messages, Purpose};
use super::judge::{Decision, judge, judge_shared, let_go, release};
use super::shared::{Counts, Shared};
use crate::handler::{
    BatchOutcome, Desk, Ended, Failure, FailureKind, Hand, HandlerOutcome, InHand, Interrupt, Outcome, WorkerFacts,
};
use crate::transport::{Delivery, Verdict};

/// The hand of one worker.
pub(super) struct WorkerHand<D: Delivery> {
    /// The message being handled.
    current: Option<Entry<D>>,
    /// The batch being handled.
    batch: Vec<Entry<D>>,
    facts: WorkerFacts,
    leased: bool,
    rest: Rest<D>,
}

/// What a worker holds beside the messages being handled.
struct Rest<D: Delivery> {
    buffer: Arc<Buffer<D>>,
    worker: usize,
    /// Taken and not begun.
    untouched: VecDeque<Entry<D>>,
    settled: Vec<(D::Receipt, Verdict)>,
    confirming: Vec<Confirming<D>>,
    acked: usize,
    stretch: Stretch,
    /// When the current call first had to wait.
    waiting_since: Option<Instant>,
    /// Made where they are first needed: most handlers never are late, and many never wait.
    timer: Option<Pin<Box<Sleep>>>,
    abandoned: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Messages begun one after the other, timed together.
struct Stretch {
    since: Instant,
    begun: u32,
}

impl<D: Delivery> WorkerHand<D> {
    pub(super) fn new(buffer: Arc<Buffer<D>>, worker: usize) -> Self {
        let now = Instant::now();
        Self {
            current: None,
            batch: Vec::new(),
            facts: WorkerFacts {
                source: buffer.shared.name.clone(),
                cancel: buffer.slot(worker).cancel.clone(),
                patience: buffer.shared.clone(),
            },
            leased: buffer.shared.capabilities.lease().is_some(),
            rest: Rest {
                worker,
                untouched: VecDeque::new(),
                settled: Vec::new(),
                confirming: Vec::new(),
                acked: 0,
                stretch: Stretch { since: now, begun: 0 },
                waiting_since: None,
                timer: None,
                abandoned: None,
                buffer,
            },
        }
    }

    /// True while there is something to begin. What has not been begun when the subscription closes is released.
    #[expect(
        clippy::inline_always,
        reason = "on the way of every message: 26 instructions of 374, counted"
    )]
    #[inline(always)]
    fn may_begin(&mut self) -> bool {
        if self.rest.untouched.is_empty() {
            return false;
        }
        let closed = self.rest.buffer.is_closed();
        if closed {
            self.rest.give_back();
        }
        !closed
    }

    #[inline]
    fn in_hand<'a>(worker: &'a WorkerFacts, entry: &'a Entry<D>) -> InHand<'a> {
        InHand {
            incoming: entry.incoming(),
            worker,
        }
    }
}

impl<D: Delivery> Hand for WorkerHand<D> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Between two stretches the other tasks of the thread have their turn. With nothing to do they have it anyway.
        if self.rest.end_stretch() && !self.rest.buffer.is_idle() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while self.rest.untouched.is_empty() {
            match self
                .rest
                .buffer
                .take(&mut self.rest.untouched, self.rest.worker, cx.waker())
            {
                // A task that was woken here waits for this thread alone. So that a handler which keeps the thread to itself does
                // not keep the fetcher too, that one has its turn first.
                Take::Taken { woke_fetcher: true } => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Take::Taken { woke_fetcher: false } => break,
                Take::Closed => return Poll::Ready(false),
                Take::Wait(None) => return Poll::Pending,
                Take::Wait(Some(due)) => {
                    if self.rest.set_timer(due).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
        self.rest.stretch.since = Instant::now();
        Poll::Ready(true)
    }

    fn next(&mut self) -> Option<(InHand<'_>, &mut dyn Desk)> {
        if !self.may_begin() {
            return None;
        }
        self.current = self.rest.untouched.pop_front();
        let entry = self.current.as_ref()?;
        self.rest.stretch.begun += 1;
        self.rest.begin(self.leased, &self.facts, std::slice::from_ref(entry));
        Some((Self::in_hand(&self.facts, entry), &mut self.rest))
    }

    fn next_batch<'a>(&'a mut self, into: &mut Vec<InHand<'a>>) -> Option<&'a mut dyn Desk> {
        if !self.may_begin() {
            return None;
        }
        self.rest.stretch.begun = self.rest.untouched.len() as u32;
        // The buffers change places; a queue becomes a list, and a list a queue, without being copied.
        let emptied = VecDeque::from(std::mem::take(&mut self.batch));
        self.batch = std::mem::replace(&mut self.rest.untouched, emptied).into();
        self.rest.begin(self.leased, &self.facts, &self.batch);
        into.extend(self.batch.iter().map(|entry| Self::in_hand(&self.facts, entry)));
        Some(&mut self.rest)
    }

    fn desk(&mut self) -> &mut dyn Desk {
        &mut self.rest
    }

    fn ack(&mut self) {
        if let Some(entry) = self.current.take() {
            self.rest.ack(entry);
        }
    }

    fn finish(&mut self, ended: Ended<Outcome>) {
        let Some(entry) = self.current.take() else { return };
        match ended {
            // Nothing is to be judged, and it is the usual end of a handler with a reply.
            Ended::Said(Outcome::Reply(reply)) => self.rest.confirm(entry, Messages::One(reply), Purpose::Reply),
            other => {
                let decision = judge(self.rest.shared(), &entry.incoming(), other);
                self.rest.carry_out(entry, decision);
            }
        }
    }

    fn finish_batch(&mut self, ended: Ended<BatchOutcome>) {
        let outcome = match ended {
            Ended::Said(BatchOutcome::Each(outcomes)) if outcomes.len() == self.batch.len() => {
                for (entry, outcome) in self.batch.drain(..).zip(outcomes) {
                    if matches!(outcome, Outcome::Said(HandlerOutcome::Ack)) {
                        self.rest.ack(entry);
                        continue;
                    }
                    let decision = judge(self.rest.shared(), &entry.incoming(), Ended::Said(outcome));
                    self.rest.carry_out(entry, decision);
                }
                return;
            }
            Ended::Said(BatchOutcome::Each(outcomes)) => {
                let text = format!(
                    "the batch handler answered {} outcomes for {} messages; return one for each, in their order",
                    outcomes.len(),
                    self.batch.len()
                );
                let_go(self.rest.shared(), outcomes);
                failed(FailureKind::WrongCount, text)
            }
            Ended::Said(BatchOutcome::All(outcome)) => outcome,
            Ended::Interrupted(Interrupt::TimedOut(limit)) => failed(
                FailureKind::Timeout,
                format!("the handler took longer than its time-out of {limit:?}"),
            ),
            Ended::Interrupted(Interrupt::Stopped) => {
                for entry in self.batch.drain(..) {
                    let decision = release(self.rest.shared());
                    self.rest.carry_out(entry, decision);
                }
                return;
            }
        };
        if matches!(outcome, Outcome::Said(HandlerOutcome::Ack)) {
            self.rest.ack_all(&mut self.batch);
            return;
        }
        for entry in self.batch.drain(..) {
            let decision = judge_shared(self.rest.shared(), &entry.incoming(), &outcome);
            self.rest.carry_out(entry, decision);
        }
        let_go(self.rest.shared(), outcome);
    }
}

fn failed(kind: FailureKind, text: String) -> Outcome {
    Outcome::Failed(Box::new(Failure::new(kind, text)))
}

impl<D: Delivery> Rest<D> {
    /// What every call begins with.
    #[expect(clippy::inline_always, reason = "on the way of every message")]
    #[inline(always)]
    fn begin(&mut self, leased: bool, facts: &WorkerFacts, entries: &[Entry<D>]) {
        self.waiting_since = None;
        if leased {
            self.buffer.slot(self.worker).hold(entries);
        } else {
            facts.cancel.renew();
        }
    }

    fn shared(&self) -> &Shared {
        &self.buffer.shared
    }

    #[expect(
        clippy::inline_always,
        reason = "on the way of every message: 26 instructions of 374, counted"
    )]
    #[inline(always)]
    fn ack(&mut self, entry: Entry<D>) {
        self.acked += 1;
        self.settle(entry, Verdict::Ack);
    }

    #[expect(
        clippy::inline_always,
        reason = "on the way of every message: 26 instructions of 374, counted"
    )]
    #[inline(always)]
    fn settle(&mut self, entry: Entry<D>, verdict: Verdict) {
        let lane = entry.lane();
        self.settled.push((entry.delivery.into_receipt(), verdict));
        if let Some(lane) = lane {
            self.buffer.leave_lane(lane);
        }
    }

    fn ack_all(&mut self, entries: &mut Vec<Entry<D>>) {
        self.acked += entries.len();
        if self.shared().settings.ordered_by.is_some() {
            for lane in entries.iter().filter_map(Entry::lane) {
                self.buffer.leave_lane(lane);
            }
        }
        let receipts = entries.drain(..).map(|entry| entry.delivery.into_receipt());
        self.settled.extend(receipts.map(|receipt| (receipt, Verdict::Ack)));
    }

    /// Does what was decided. Replies, and retries whose delay the transport keeps, are handed on with the acks of their stretch.
    #[expect(clippy::inline_always, reason = "on the way of every retry")]
    #[inline(always)]
    fn carry_out(&mut self, entry: Entry<D>, decision: Decision) {
        match decision {
            Decision::Settle(verdict @ Verdict::Retry { .. }) => self.settle(entry, verdict),
            Decision::Confirm(messages, purpose) => self.confirm(entry, messages, purpose),
            other => self.buffer.carry_out(entry, other),
        }
    }

    #[inline]
    fn confirm(&mut self, entry: Entry<D>, messages: Messages, purpose: Purpose) {
        self.confirming.push(Confirming::new(entry, messages, purpose));
    }

    fn give_back(&mut self) {
        self.buffer.give_back(&mut self.untouched);
    }

    /// Hands on what is finished and takes the time; true if there was something.
    fn end_stretch(&mut self) -> bool {
        let begun = std::mem::take(&mut self.stretch.begun);
        if begun == 0 {
            return false;
        }
        let now = Instant::now();
        self.shared().served(begun, now - self.stretch.since);
        self.stretch.since = now;
        self.hand_on();
        true
    }

    fn hand_on(&mut self) {
        let acked = std::mem::take(&mut self.acked);
        Counts::add(&self.shared().counts.acked, acked);
        if !(self.settled.is_empty() && self.confirming.is_empty()) {
            self.buffer.finish(&mut self.settled, &mut self.confirming);
        }
    }

    fn wait_begins(&mut self) -> Instant {
        let now = Instant::now();
        // What came before the waiting call is timed without it, and settled without it. A batch is one call.
        let before = match self.shared().settings.batch {
            Some(_) => 0,
            None => std::mem::replace(&mut self.stretch.begun, 1).saturating_sub(1),
        };
        if before > 0 {
            self.shared().served(before, now - self.stretch.since);
            self.stretch.since = now;
        }
        self.hand_on();
        self.give_back();
        if let Some(limit) = self.shared().settings.timeout {
            self.set_timer(now + limit);
        }
        now
    }

    fn set_timer(&mut self, due: Instant) -> Pin<&mut Sleep> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        timer.as_mut().reset(due);
        timer.as_mut()
    }
}

impl<D: Delivery> Desk for Rest<D> {
    fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Option<Interrupt> {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(self.wait_begins());
        }
        let Self { buffer, abandoned, .. } = self;
        let abandoned =
            abandoned.get_or_insert_with(|| Box::pin(buffer.shared.signals.abandon.clone().cancelled_owned()));
        if abandoned.as_mut().poll(cx).is_ready() {
            self.buffer.slot(self.worker).cancel.cancel();
            return Some(Interrupt::Stopped);
        }
        let limit = self.shared().settings.timeout?;
        let late = self.timer.as_mut()?.as_mut().poll(cx).is_ready();
        late.then(|| {
            self.buffer.slot(self.worker).cancel.cancel();
            Interrupt::TimedOut(limit)
        })
    }
}

impl<D: Delivery> Drop for WorkerHand<D> {
    /// A worker that ends in the middle leaves what it was about to be judged, if it panicked, and releases it if not.
    fn drop(&mut self) {
        self.batch.extend(self.current.take());
        if std::thread::panicking() {
            self.rest.buffer.slot(self.rest.worker).wreck(self.batch.drain(..));
        }
        for entry in self.batch.drain(..) {
            self.rest.settled.push(entry.given_back());
        }
        self.rest.hand_on();
        self.rest.give_back();
    }
}
