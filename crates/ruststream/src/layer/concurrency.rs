//! One limit for the calls of many handlers.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::handler::{BatchOutcome, Batched, Call, Layer, Outcome, Single};

/// Bounds how many calls of all the handlers under it run at a time: for a bank, a file or a device that takes no more.
///
/// A call beyond the limit waits, with its message in hand and its subscription's [time-out](crate::app::Subscription::timeout) running.
/// A batch is one call. Clones share the limit, so that it holds across scopes and brokers. For one subscription alone, its
/// [`workers`](crate::app::Subscription::workers) are the limit.
#[derive(Debug, Clone)]
pub struct ConcurrencyLimit {
    permits: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    /// At most this many calls at a time. Zero counts as one.
    pub fn new(calls: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS))),
        }
    }
}

impl Layer for ConcurrencyLimit {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        // Never closed, so never an error.
        let _permit = self.permits.acquire().await;
        next.call(call).await
    }

    async fn call_batch<'a, S: Send + Sync + 'static>(
        &'a self,
        calls: &'a [Call<'a, S>],
        next: &'a impl Batched<S>,
    ) -> BatchOutcome {
        let _permit = self.permits.acquire().await;
        next.call(calls).await
    }
}
