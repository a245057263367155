//! Looking on at a subscription: what a test does. Where no one does, a message pays nothing for it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::handler::{BatchOutcome, Desk, Ended, Failure, Hand, InHand, Interrupt, Outcome};
use crate::message::Incoming;
use crate::transport::DeadLetter;

/// Is told what the handler of a subscription is given, what it says, and what follows from it.
///
/// A message is known again by the address of its headers, which stays the same until it is settled.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// A call begins; answers a number for it.
    fn began(&self, message: &Incoming<'_>) -> u64;

    /// A call ended, other than by a panic.
    fn ended(&self, call: u64, end: End<'_>);

    /// The handling of a message failed: its call, by a panic too, or the confirmation of its reply.
    fn failed(&self, message: &Incoming<'_>, failure: &Failure);

    /// A message will be handled again after `wait`.
    fn again(&self, message: &Incoming<'_>, wait: Duration);

    /// A message becomes a dead letter, at a place of the subscription's own or where the transport keeps them.
    fn buried(&self, message: &Incoming<'_>, letter: &DeadLetter, place: Option<&str>);
}

/// How a call ended.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "testing"),
    expect(dead_code, reason = "only a test reads what is in them")
)]
pub(crate) enum End<'a> {
    Said(&'a Outcome),
    /// The batch handler answered this number of outcomes, and it was not that of its messages.
    WrongCount(usize),
    Interrupted(Interrupt),
}

/// A hand whose calls are looked on at.
pub(super) struct Watched {
    hand: Box<dyn Hand>,
    observer: Arc<dyn Observer>,
    /// The call in progress, or one for each message of the batch.
    calls: Vec<u64>,
}

impl Watched {
    pub(super) fn new(hand: Box<dyn Hand>, observer: Arc<dyn Observer>) -> Self {
        Self {
            hand,
            observer,
            calls: Vec::new(),
        }
    }

    fn ended(&mut self, end: End<'_>) {
        for call in self.calls.drain(..) {
            self.observer.ended(call, end);
        }
    }
}

impl Hand for Watched {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.hand.poll_ready(cx)
    }

    fn next(&mut self) -> Option<(InHand<'_>, &mut dyn Desk)> {
        let (in_hand, desk) = self.hand.next()?;
        self.calls.clear();
        self.calls.push(self.observer.began(&in_hand.incoming));
        Some((in_hand, desk))
    }

    fn next_batch<'a>(&'a mut self, into: &mut Vec<InHand<'a>>) -> Option<&'a mut dyn Desk> {
        let desk = self.hand.next_batch(into)?;
        self.calls.clear();
        self.calls
            .extend(into.iter().map(|in_hand| self.observer.began(&in_hand.incoming)));
        Some(desk)
    }

    fn desk(&mut self) -> &mut dyn Desk {
        self.hand.desk()
    }

    fn ack(&mut self) {
        self.ended(End::Said(&Outcome::ACK));
        self.hand.ack();
    }

    fn finish(&mut self, ended: Ended<Outcome>) {
        self.ended(match &ended {
            Ended::Said(outcome) => End::Said(outcome),
            Ended::Interrupted(interrupt) => End::Interrupted(*interrupt),
        });
        self.hand.finish(ended);
    }

    fn finish_batch(&mut self, ended: Ended<BatchOutcome>) {
        match &ended {
            Ended::Said(BatchOutcome::Each(outcomes)) if outcomes.len() == self.calls.len() => {
                for (call, outcome) in self.calls.drain(..).zip(outcomes) {
                    self.observer.ended(call, End::Said(outcome));
                }
            }
            Ended::Said(BatchOutcome::Each(outcomes)) => self.ended(End::WrongCount(outcomes.len())),
            Ended::Said(BatchOutcome::All(outcome)) => self.ended(End::Said(outcome)),
            Ended::Interrupted(interrupt) => self.ended(End::Interrupted(*interrupt)),
        }
        self.hand.finish_batch(ended);
    }
}
