//! What follows from the end of a call: the one place where a policy meets an outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::entry::{Messages, Purpose};
use super::shared::{Counts, Shared};
use crate::handler::{Ended, Failure, FailureKind, HandlerOutcome, Interrupt, Outcome, Patience};
use crate::message::{Incoming, header};
use crate::policy::{OnUndecodable, Retry};
use crate::publish::Prepared;
use crate::transport::{DeadLetter, DeadReason, TransportError, Verdict};

/// How much of an error a dead letter tells, in bytes: what fits into a header of every broker.
const LONGEST_ERROR: usize = 16 * 1024;

/// What is to be done with a delivery.
#[derive(Debug)]
pub(super) enum Decision {
    /// It is settled so.
    Settle(Verdict),
    /// Its handler could not take it, and it is acked all the same: what was left for the ack is undone.
    Discard,
    /// It is kept unsettled in hand and handled again after this time.
    Keep(Duration),
    /// It is acked once these messages are confirmed.
    Confirm(Messages, Purpose),
}

/// Decides what follows from the end of a call.
#[inline]
pub(super) fn judge(shared: &Shared, message: &Incoming<'_>, ended: Ended<Outcome>) -> Decision {
    let outcome = match ended {
        Ended::Said(outcome) => outcome,
        Ended::Interrupted(Interrupt::TimedOut(limit)) => Outcome::Failed(Box::new(Failure::new(
            FailureKind::Timeout,
            format!("the handler took longer than its time-out of {limit:?}"),
        ))),
        Ended::Interrupted(Interrupt::Stopped) => return release(shared),
    };
    match outcome {
        Outcome::Said(said) => judge_said(shared, message, said),
        Outcome::Failed(failure) => judge_failure(shared, message, *failure),
        Outcome::Undecodable(text) => judge_undecodable(shared, message, text),
        Outcome::Reply(reply) => Decision::Confirm(Messages::One(reply), Purpose::Reply),
        Outcome::Replies(replies) => Decision::Confirm(Messages::Several(replies), Purpose::Reply),
    }
}

/// Decides as for one failure of a whole batch, without taking the outcome.
pub(super) fn judge_shared(shared: &Shared, message: &Incoming<'_>, outcome: &Outcome) -> Decision {
    match outcome {
        Outcome::Said(said) => judge_said(shared, message, said.clone()),
        Outcome::Failed(failure) => failed(shared, message, failure),
        Outcome::Undecodable(text) => judge_undecodable(shared, message, text.clone()),
        // A batch has one reply for each message, never one for all.
        Outcome::Reply(_) | Outcome::Replies(_) => judge_said(shared, message, HandlerOutcome::Ack),
    }
}

/// Given back as it came, because the app stops.
pub(super) fn release(shared: &Shared) -> Decision {
    Counts::add(&shared.counts.released, 1);
    Decision::Settle(Verdict::Release)
}

/// Decides what follows when a reply was not confirmed.
pub(super) fn not_confirmed(shared: &Shared, message: &Incoming<'_>, error: &TransportError) -> Decision {
    let text = format!("the reply was not confirmed: {}", super::shared::chain(error));
    failed(shared, message, &Failure::new(FailureKind::Reply, text))
}

/// Decides about a message that was delivered more often than any policy grants. No attempt before came to an end that was
/// judged, as when it ends its process: the handler is not given it again.
pub(super) fn outlived(shared: &Shared, message: &Incoming<'_>) -> Decision {
    let attempts = message.attempt() - 1;
    let text =
        format!("{attempts} attempts were begun and the last of them never ended, as when a message ends its process");
    bury(
        shared,
        &message.with_attempt(attempts),
        DeadReason::AttemptsExhausted,
        text,
    )
}

fn judge_said(shared: &Shared, message: &Incoming<'_>, said: HandlerOutcome) -> Decision {
    match said {
        HandlerOutcome::Ack => {
            Counts::add(&shared.counts.acked, 1);
            Decision::Settle(Verdict::Ack)
        }
        HandlerOutcome::Drop => {
            Counts::add(&shared.counts.dropped, 1);
            Decision::Settle(Verdict::Ack)
        }
        HandlerOutcome::DeadLetter { reason } => bury(shared, message, DeadReason::Rejected, reason),
        HandlerOutcome::Retry { after } => {
            let attempt = message.attempt();
            let wait = match after {
                Some(after) => shared.settings.retry.otherwise.goes_on_after(attempt).then_some(after),
                None => wait_after(shared, attempt, None),
            };
            match wait {
                Some(wait) => again(shared, message, wait),
                None => bury(
                    shared,
                    message,
                    DeadReason::AttemptsExhausted,
                    "the handler asked for one more attempt than the retry policy has".to_owned(),
                ),
            }
        }
    }
}

fn judge_failure(shared: &Shared, message: &Incoming<'_>, failure: Failure) -> Decision {
    let decision = failed(shared, message, &failure);
    let_go(shared, failure);
    decision
}

/// Drops what holds errors of the user, whose drop may panic.
pub(super) fn let_go<T>(shared: &Shared, errors: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(errors))).is_err() {
        tracing::error!(subscription = %shared.name, "an error panicked while it was dropped");
    }
}

fn failed(shared: &Shared, message: &Incoming<'_>, failure: &Failure) -> Decision {
    if let Some(observer) = &shared.settings.observer {
        observer.failed(message, failure);
    }
    Counts::add(&shared.counts.failed, 1);
    match wait_after(shared, message.attempt(), Some(failure)) {
        Some(wait) => {
            if let Some(others) = shared.may_tell() {
                tracing::warn!(
                    subscription = %shared.name, handler = shared.handler, id = id(message), key = key(message), attempt = message.attempt(),
                    kind = ?failure.kind(), error = failure.text(), ?wait, others, "a message failed and will be tried again"
                );
            } else {
                tracing::debug!(
                    subscription = %shared.name, handler = shared.handler, id = id(message), key = key(message), attempt = message.attempt(),
                    kind = ?failure.kind(), error = failure.text(), ?wait, "a message failed and will be tried again"
                );
            }
            again(shared, message, wait)
        }
        None => bury(
            shared,
            message,
            DeadReason::AttemptsExhausted,
            failure.text().to_owned(),
        ),
    }
}

/// What layers ask beforehand.
impl Patience for Shared {
    fn ends_by(&self, attempt: u32, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Said(HandlerOutcome::Ack) | Outcome::Reply(_) | Outcome::Replies(_) => false,
            Outcome::Said(HandlerOutcome::Drop | HandlerOutcome::DeadLetter { .. }) => true,
            Outcome::Undecodable(_) if self.settings.on_undecodable != OnUndecodable::Retry => true,
            Outcome::Said(HandlerOutcome::Retry { .. }) | Outcome::Undecodable(_) => self.ends_with(attempt),
            Outcome::Failed(failure) => wait_after(self, attempt, Some(failure)).is_none(),
        }
    }

    fn ends_with(&self, attempt: u32) -> bool {
        !self.settings.retry.otherwise.goes_on_after(attempt)
    }
}

/// Which message a line of the log is about.
fn id<'a>(message: &Incoming<'a>) -> Option<&'a str> {
    message.headers().get_str(header::MESSAGE_ID)
}

/// The key of a message, as far as it is short and text.
fn key<'a>(message: &Incoming<'a>) -> Option<&'a str> {
    const SHOWN: usize = 64;
    let key = message.key()?;
    std::str::from_utf8(key).ok().filter(|key| key.len() <= SHOWN)
}

/// The wait after `attempt` failed, or `None` if it was the last.
fn wait_after(shared: &Shared, attempt: u32, failure: Option<&Failure>) -> Option<Duration> {
    let policy = &shared.settings.retry;
    // Its exceptions and a backoff of one's own are the user's code: they may panic.
    catch_unwind(AssertUnwindSafe(|| match failure {
        Some(failure) => failure.with_cause(|cause| policy.after(attempt, cause, fastrand::f64())),
        None => policy.after(attempt, None, fastrand::f64()),
    }))
    .unwrap_or_else(|_| {
        tracing::error!(subscription = %shared.name, "the retry policy panicked; its default holds");
        Retry::default().after(attempt, fastrand::f64())
    })
}

fn judge_undecodable(shared: &Shared, message: &Incoming<'_>, text: String) -> Decision {
    match shared.settings.on_undecodable {
        OnUndecodable::DeadLetter => {
            Counts::add(&shared.counts.failed, 1);
            bury(shared, message, DeadReason::Undecodable, text)
        }
        OnUndecodable::Retry => failed(shared, message, &Failure::new(FailureKind::Error, text)),
        OnUndecodable::Drop => {
            tracing::warn!(
                subscription = %shared.name, handler = shared.handler, id = id(message), key = key(message), attempt = message.attempt(),
                error = text, "an undecodable message was thrown away"
            );
            Counts::add(&shared.counts.dropped, 1);
            Decision::Discard
        }
    }
}

/// Tries again after `wait`, where the transport keeps the delay, or else with the delivery kept unsettled in hand.
fn again(shared: &Shared, message: &Incoming<'_>, wait: Duration) -> Decision {
    if let Some(observer) = &shared.settings.observer {
        observer.again(message, wait);
    }
    Counts::add(&shared.counts.retried, 1);
    let in_hand = shared.settings.ordered_by.is_some() || !shared.capabilities.delay();
    if in_hand {
        Decision::Keep(wait)
    } else {
        Decision::Settle(Verdict::Retry { after: wait })
    }
}

/// Makes a dead letter of a message: where the subscription names a place, there; else where the transport keeps them; else
/// under `<name>.dead`.
fn bury(shared: &Shared, message: &Incoming<'_>, reason: DeadReason, error: String) -> Decision {
    tracing::error!(
        subscription = %shared.name, handler = shared.handler, id = id(message), key = key(message), attempt = message.attempt(),
        %reason, error, "a message becomes a dead letter"
    );
    let letter = DeadLetter {
        reason,
        error: cut(error),
        attempts: message.attempt(),
        source: shared.name.to_string(),
        at: SystemTime::now(),
    };
    if let Some(observer) = &shared.settings.observer {
        observer.buried(message, &letter, shared.settings.dead_letter.as_deref());
    }
    match &shared.settings.dead_letter {
        None if shared.capabilities.dead_letters() => {
            Counts::add(&shared.counts.dead_lettered, 1);
            Decision::Settle(Verdict::DeadLetter(Box::new(letter)))
        }
        None => Decision::Confirm(
            copy_of(message, &letter, format!("{}.dead", shared.name)),
            Purpose::DeadLetter,
        ),
        Some(place) => Decision::Confirm(copy_of(message, &letter, place.to_string()), Purpose::DeadLetter),
    }
}

/// The beginning of an error that no header or column could hold whole: a letter that cannot be stored would stay in hand for ever.
fn cut(mut error: String) -> String {
    if error.len() > LONGEST_ERROR {
        error.truncate(error.floor_char_boundary(LONGEST_ERROR));
    }
    error
}

fn copy_of(message: &Incoming<'_>, letter: &DeadLetter, destination: String) -> Messages {
    let millis = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis()
            .to_string()
    };
    let mut headers = message.headers().clone();
    headers.insert(header::DEAD_REASON, letter.reason.as_str());
    headers.insert(header::DEAD_ERROR, letter.error.clone());
    headers.insert(header::DEAD_ATTEMPTS, letter.attempts.to_string());
    headers.insert(header::DEAD_SOURCE, letter.source.clone());
    headers.insert(header::DEAD_AT, millis(letter.at));
    if let Some(published_at) = message.published_at() {
        headers.insert(header::DEAD_PUBLISHED_AT, millis(published_at));
    }
    Messages::One(Box::new(Prepared {
        destination: destination.into(),
        payload: message.payload().to_vec(),
        headers,
        key: message.key().map(bytes::Bytes::copy_from_slice),
        ..Prepared::default()
    }))
}
