//! The eyes of a test on one subscription.

use std::sync::Arc;
use std::time::Duration;

use super::journal::{Journal, Seat};
use super::record::CallOutcome;
use crate::handler::{Failure, FailureKind, Interrupt, Outcome};
use crate::message::Incoming;
use crate::runtime::{End, Observer};
use crate::transport::DeadLetter;

/// Writes down what happens on one subscription.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) journal: Arc<Journal>,
    pub(super) seat: Arc<Seat>,
}

impl Observer for Recorder {
    fn began(&self, message: &Incoming<'_>) -> u64 {
        self.journal.called(&self.seat, message) as u64
    }

    fn ended(&self, call: u64, end: End<'_>) {
        let now = self.journal.now();
        let outcome = outcome_of(end);
        self.journal.change(call as usize, |called| {
            called.call.outcome = outcome;
            called.ended_at = Some(now);
        });
    }

    fn failed(&self, message: &Incoming<'_>, failure: &Failure) {
        let now = self.journal.now();
        self.journal.change_last(message, |called| {
            // What was said is known; what is new is a panic, and a reply that was not confirmed.
            if matches!(
                called.call.outcome,
                CallOutcome::Running | CallOutcome::Replied(_) | CallOutcome::RepliedTo(_)
            ) {
                called.call.outcome = failed(failure);
                called.ended_at.get_or_insert(now);
            }
        });
    }

    fn again(&self, message: &Incoming<'_>, wait: Duration) {
        self.journal
            .change_last(message, |called| called.call.retry_after = Some(wait));
    }

    fn buried(&self, message: &Incoming<'_>, letter: &DeadLetter, place: Option<&str>) {
        let place = place.map(|place| format!(" in `{place}`")).unwrap_or_default();
        let mut text = format!("becomes a dead letter{place}, {}", letter.reason);
        self.journal.change_last(message, |called| {
            if called.call.error() != Some(&letter.error) {
                text = format!("{text}: {}", letter.error);
            }
            called.buried = Some(text);
        });
    }
}

fn outcome_of(end: End<'_>) -> CallOutcome {
    match end {
        End::Said(Outcome::Said(said)) => CallOutcome::Said(said.clone()),
        End::Said(Outcome::Reply(reply)) => CallOutcome::Replied(reply.destination.to_string()),
        End::Said(Outcome::Replies(replies)) => {
            CallOutcome::RepliedTo(replies.iter().map(|reply| reply.destination.to_string()).collect())
        }
        End::Said(Outcome::Failed(failure)) => failed(failure),
        End::Said(Outcome::Undecodable(error)) => CallOutcome::Undecodable(error.clone()),
        End::WrongCount(outcomes) => CallOutcome::Failed {
            kind: FailureKind::WrongCount,
            error: format!("the batch handler answered {outcomes} outcomes, which is not one for each message"),
        },
        End::Interrupted(Interrupt::TimedOut(limit)) => CallOutcome::Failed {
            kind: FailureKind::Timeout,
            error: format!("the handler took longer than its time-out of {limit:?}"),
        },
        End::Interrupted(Interrupt::Stopped) => CallOutcome::Stopped,
    }
}

fn failed(failure: &Failure) -> CallOutcome {
    CallOutcome::Failed {
        kind: failure.kind(),
        error: failure.text().to_owned(),
    }
}
