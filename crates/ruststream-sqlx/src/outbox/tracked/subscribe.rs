//! The layer that handles what is recorded once, and marks it.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ruststream::handler::{Batch, BatchOutcome, Batched, Call, Failure, HandlerOutcome, Layer, Outcome, Single};
use tokio::time::{Instant, interval_at};

use super::Shared;
use super::lane::{Held, Wanted, Work};
use crate::clock::millis;
use crate::outbox::OutboxDatabase;
use crate::outbox::fields::tracked_id;
use crate::outbox::records::{TrackedEnd, TrackedState};

/// After what time a message is tried again that another call is handling.
const IN_PROGRESS: Duration = Duration::from_millis(500);

/// The layer around handlers of [`Tracked`](super::Tracked): it claims the record of a message, calls the handler, and marks the record.
///
/// - A message whose record was marked is acked, without a call. One that another call is handling is tried again by the policy of its
///   subscription, and acked at the last attempt: its record is open until it is marked.
/// - A call that failed, panicked, was dropped, or asked for a retry leaves no mark, and its message can be handled at once again.
/// - A message that its subscription gives up is sent no more: the dead letter keeps it from then on, and may be replayed.
/// - A reply leaves its mark before it is sent: a process that dies between the two loses the reply. Whose answer must come publishes it
///   by `Out`, under a name that is tracked.
/// - The effects of the handler and the mark are two: a crash between them has the message handled again. Where they must be one,
///   [`Receipts`](super::super::Receipts) do it.
pub struct TrackedMark<DB: OutboxDatabase>(pub(super) Arc<Shared<DB>>);

impl<DB: OutboxDatabase> TrackedMark<DB> {
    /// Claims a record, or answers what becomes of its message without a call. `None` where the message is handled as if it were not
    /// tracked.
    async fn claim<S>(&self, call: &Call<'_, S>, id: &str) -> Result<Option<Claimed<DB>>, Outcome> {
        let wanted = Wanted {
            id: id.to_owned(),
            consumer: call.source().into(),
            lease: millis(self.0.settings.lease),
        };
        match self.0.lanes.ask(|reply| Work::Claim(wanted, reply)).await {
            Ok((TrackedState::Granted, token)) => Ok(Some(Claimed {
                shared: self.0.clone(),
                held: Some(Held {
                    id: id.to_owned(),
                    token,
                }),
                last: call.is_last_attempt(),
            })),
            Ok((TrackedState::Handled, _)) => Err(Outcome::ACK),
            // The call that handles it marks it, or else it is sent again: this delivery is not needed for that.
            Ok((TrackedState::InProgress, _)) if call.is_last_attempt() => Err(Outcome::ACK),
            Ok((TrackedState::InProgress, _)) => Err(Outcome::Said(HandlerOutcome::Retry {
                after: Some(IN_PROGRESS),
            })),
            Ok((TrackedState::Unknown, _)) => {
                tracing::debug!(
                    id,
                    consumer = call.source(),
                    "not recorded for this consumer; handled untracked"
                );
                Ok(None)
            }
            Err(error) => Err(Outcome::Failed(Box::new(Failure::error(error)))),
        }
    }

    async fn tracked<'a, S: Send + Sync + 'static>(
        &'a self,
        call: Call<'a, S>,
        id: &'a str,
        next: &'a impl Single<S>,
    ) -> Outcome {
        let mut claimed = match self.claim(&call, id).await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return next.call(call).await,
            Err(outcome) => return outcome,
        };
        let outcome = renewing(std::slice::from_ref(&claimed), &self.0, next.call(call)).await;
        match claimed.end(&outcome, call.gives_up_by(&outcome)).await {
            Ok(()) => outcome,
            Err(failed) => failed,
        }
    }
}

/// Waits for a call, and renews its claims meanwhile.
async fn renewing<T, DB: OutboxDatabase>(
    claimed: &[Claimed<DB>],
    shared: &Shared<DB>,
    calling: impl Future<Output = T>,
) -> T {
    let mut calling = std::pin::pin!(calling);
    // Most calls end with the first look, and need no timer.
    if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(calling.as_mut().poll(cx))).await {
        return outcome;
    }
    let lease = shared.settings.lease;
    let mut beats = interval_at(Instant::now() + lease / 3, lease / 3);
    loop {
        tokio::select! {
            biased;
            outcome = &mut calling => return outcome,
            _ = beats.tick() => {
                for held in claimed.iter().filter_map(|claimed| claimed.held.clone()) {
                    shared.lanes.tell(|reply| Work::End(held, TrackedEnd::Renewed(millis(lease)), reply));
                }
            }
        }
    }
}

impl<DB: OutboxDatabase> Layer for TrackedMark<DB> {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        match tracked_id(&call.incoming()) {
            None => next.call(call).await,
            // In a box, so that what is not tracked pays nothing for its size.
            Some(id) => Box::pin(self.tracked(call, id, next)).await,
        }
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        if calls.iter().all(|call| tracked_id(&call.incoming()).is_none()) {
            return next.call(calls).await;
        }
        let claiming = calls.iter().map(async |call| match tracked_id(&call.incoming()) {
            Some(id) => self.claim(call, id).await,
            None => Ok(None),
        });
        let mut claims = Vec::with_capacity(calls.len());
        let mut decided = Vec::with_capacity(calls.len());
        for (call, claimed) in calls.iter().zip(futures_util::future::join_all(claiming).await) {
            decided.push(claimed.map(|claimed| {
                claims.push(claimed.unwrap_or_else(|| Claimed {
                    shared: self.0.clone(),
                    held: None,
                    last: false,
                }));
                *call
            }));
        }
        let batch = match Batch::apart(decided.into_iter()) {
            Ok(batch) => batch,
            Err(outcome) => return outcome,
        };
        let said = renewing(&claims, &self.0, next.call(batch.messages())).await;
        let outcomes = match &said {
            BatchOutcome::All(outcome) => vec![outcome; claims.len()],
            BatchOutcome::Each(outcomes) if outcomes.len() == claims.len() => outcomes.iter().collect(),
            // Another number of outcomes is a failure of all.
            _ => Vec::new(),
        };
        let ending = claims
            .iter_mut()
            .zip(batch.messages())
            .zip(outcomes)
            .map(|((claimed, call), outcome)| claimed.end(outcome, call.gives_up_by(outcome)));
        for ended in futures_util::future::join_all(ending).await {
            if let Err(failed) = ended {
                return batch.outcome(BatchOutcome::All(failed));
            }
        }
        batch.outcome(said)
    }
}

impl<DB: OutboxDatabase> fmt::Debug for TrackedMark<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedMark").finish_non_exhaustive()
    }
}

/// A claim that is held, where the message has a record. Dropped, it is released, or given up where no attempt is left.
struct Claimed<DB: OutboxDatabase> {
    shared: Arc<Shared<DB>>,
    held: Option<Held>,
    last: bool,
}

impl<DB: OutboxDatabase> Claimed<DB> {
    /// Marks the record, releases it, or gives it up as its subscription does.
    ///
    /// # Errors
    ///
    /// The failure of the call, where its mark could not be made: the message comes again then.
    async fn end(&mut self, outcome: &Outcome, gives_up: bool) -> Result<(), Outcome> {
        let Some(held) = self.held.take() else { return Ok(()) };
        let end = match outcome {
            Outcome::Said(HandlerOutcome::Ack | HandlerOutcome::Drop) | Outcome::Reply(_) | Outcome::Replies(_) => {
                TrackedEnd::Handled
            }
            _ if gives_up => TrackedEnd::GivenUp,
            _ => TrackedEnd::Released,
        };
        let ended = self.shared.lanes.ask(|reply| Work::End(held, end, reply)).await;
        match (ended, end) {
            (Err(error), TrackedEnd::Handled) => Err(Outcome::Failed(Box::new(Failure::error(error)))),
            // Its lease ends by itself.
            _ => Ok(()),
        }
    }
}

impl<DB: OutboxDatabase> Drop for Claimed<DB> {
    fn drop(&mut self) {
        // A panic, or a call dropped in the middle: nobody is left to wait.
        if let Some(held) = self.held.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let end = if self.last {
                TrackedEnd::GivenUp
            } else {
                TrackedEnd::Released
            };
            self.shared.lanes.tell(|reply| Work::End(held, end, reply));
        }
    }
}
