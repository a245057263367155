//! A filter before handlers.

use std::fmt;

use crate::handler::{Batch, BatchOutcome, Batched, Call, HandlerOutcome, Layer, Outcome, Single};
use crate::message::Incoming;

/// Lets only some messages through to the handlers under it. The others are thrown away: acked, and counted as
/// [dropped](crate::app::SubscriptionHealth::dropped).
///
/// It sees a message before it is decoded. It does not share messages out: two subscriptions that read one queue take
/// turns, and each throws away what it does not want. For several kinds of message on one queue, take an
/// [enum](crate::handler::Message).
///
/// # Examples
///
/// ```
/// use ruststream::layer::OnlyIf;
///
/// let orders = OnlyIf::header("kind", "order");
/// let small = OnlyIf::new(|message| message.payload().len() < 1024);
/// # let _ = (orders, small);
/// ```
pub struct OnlyIf {
    wanted: Box<dyn Fn(&Incoming<'_>) -> bool + Send + Sync>,
}

impl OnlyIf {
    /// Lets those through that `wanted` says yes to.
    pub fn new(wanted: impl Fn(&Incoming<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self {
            wanted: Box::new(wanted),
        }
    }

    /// Lets those through that have this value under this header; where the header stands more than once, as one of its values.
    pub fn header(name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        let (name, value) = (name.into(), value.into());
        Self::new(move |message| message.headers().get_all(&name).any(|one| *one == *value))
    }
}

impl Layer for OnlyIf {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        if (self.wanted)(&call.incoming()) {
            next.call(call).await
        } else {
            UNWANTED
        }
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        let sift = |call: &Call<'a, S>| {
            if (self.wanted)(&call.incoming()) {
                Ok(*call)
            } else {
                Err(UNWANTED)
            }
        };
        match Batch::read(calls, sift) {
            Err(none) => none,
            Ok(batch) => {
                let said = next.call(batch.messages()).await;
                batch.outcome(said)
            }
        }
    }
}

const UNWANTED: Outcome = Outcome::Said(HandlerOutcome::Drop);

impl fmt::Debug for OnlyIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnlyIf").finish_non_exhaustive()
    }
}
