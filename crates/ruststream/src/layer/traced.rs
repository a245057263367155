//! A span around each call.

use tracing::field::{Empty, display};
use tracing::{Instrument, Span, info_span};

use crate::handler::{BatchOutcome, Batched, Call, HandlerOutcome, Layer, Outcome, Single};
use crate::message::header;

/// Puts a [`tracing`] span around each call, so that all that is logged in it says what it is about.
///
/// The span is named `handle`, at level `INFO`. Its fields: `subscription`, `attempt`, `message_id` and `traceparent` where the
/// message has them, and `outcome` at the end. A batch has one span, with `messages`, their number, in place of what is of one
/// message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traced;

impl Layer for Traced {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        let incoming = call.incoming();
        let headers = incoming.headers();
        let span = info_span!(
            "handle",
            subscription = call.source(),
            attempt = incoming.attempt(),
            message_id = headers.get_str(header::MESSAGE_ID),
            traceparent = headers.get_str(header::TRACE_PARENT),
            outcome = Empty,
        );
        let outcome = next.call(call).instrument(span.clone()).await;
        record(&span, &outcome);
        outcome
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        let subscription = calls.first().map(Call::source);
        let span = info_span!("handle", subscription, messages = calls.len(), outcome = Empty);
        let outcome = next.call(calls).instrument(span.clone()).await;
        match &outcome {
            BatchOutcome::All(all) => record(&span, all),
            BatchOutcome::Each(each) => {
                let done = each
                    .iter()
                    .filter(|one| matches!(name(one), "acked" | "replied"))
                    .count();
                span.record("outcome", display(format_args!("{done} acked of {}", each.len())));
            }
        }
        outcome
    }
}

fn record(span: &Span, outcome: &Outcome) {
    span.record("outcome", name(outcome));
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Said(HandlerOutcome::Ack) => "acked",
        Outcome::Said(HandlerOutcome::Retry { .. }) => "retry",
        Outcome::Said(HandlerOutcome::Drop) => "dropped",
        Outcome::Said(HandlerOutcome::DeadLetter { .. }) => "rejected",
        Outcome::Reply(_) | Outcome::Replies(_) => "replied",
        Outcome::Failed(_) => "failed",
        Outcome::Undecodable(_) => "undecodable",
    }
}
