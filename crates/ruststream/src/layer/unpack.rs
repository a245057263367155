//! What layers have in common that put another payload in the place of the one that came.

use crate::handler::{Batch, BatchOutcome, Batched, Call, InHand, Outcome, Single};
use crate::message::{HeaderMap, Incoming};

/// Makes of a message what the handler is to see.
pub(super) trait Unpack: Send + Sync + 'static {
    /// The message as the handler is to see it; `None` where that is how it came.
    fn unpack(&self, incoming: Incoming<'_>) -> impl Future<Output = Result<Option<Unpacked>, Outcome>> + Send;
}

/// What takes the place of a part of a message.
pub(super) struct Unpacked {
    pub(super) payload: Vec<u8>,
    /// Those that came, where there is nothing else.
    pub(super) headers: Option<HeaderMap>,
}

impl Unpacked {
    fn in_hand<'a, S>(&'a self, call: &Call<'a, S>) -> InHand<'a> {
        let mut incoming = call.incoming().with_payload(&self.payload);
        if let Some(headers) = &self.headers {
            incoming = incoming.with_headers(headers);
        }
        InHand {
            incoming,
            ..*call.in_hand
        }
    }
}

pub(super) async fn call<S: Send + Sync + 'static>(
    unpack: &impl Unpack,
    call: Call<'_, S>,
    next: &impl Single<S>,
) -> Outcome {
    match unpack.unpack(call.incoming()).await {
        Ok(None) => next.call(call).await,
        Ok(Some(unpacked)) => {
            let in_hand = unpacked.in_hand(&call);
            next.call(call.with_in_hand(&in_hand)).await
        }
        Err(outcome) => outcome,
    }
}

pub(super) async fn call_batch<S: Send + Sync + 'static>(
    unpack: &impl Unpack,
    calls: &[Call<'_, S>],
    next: &impl Batched<S>,
) -> BatchOutcome {
    let mut unpacked = Vec::with_capacity(calls.len());
    for call in calls {
        unpacked.push(unpack.unpack(call.incoming()).await.map(|unpacked| (*call, unpacked)));
    }
    let batch = match Batch::apart(unpacked.into_iter()) {
        Ok(batch) => batch,
        Err(outcome) => return outcome,
    };
    let in_hand = batch.messages().iter().map(|(call, unpacked)| match unpacked {
        Some(unpacked) => unpacked.in_hand(call),
        None => *call.in_hand,
    });
    let in_hand: Vec<_> = in_hand.collect();
    let calls = batch.messages().iter().zip(&in_hand);
    let calls: Vec<_> = calls.map(|((call, _), in_hand)| call.with_in_hand(in_hand)).collect();
    let said = next.call(&calls).await;
    drop(calls);
    drop(in_hand);
    batch.outcome(said)
}
