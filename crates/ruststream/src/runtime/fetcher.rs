//! The part that fetches: it asks for as much as there is room for, and backs off when the transport fails.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Duration, sleep, timeout};

use super::buffer::Buffer;
use super::shared::{Shared, Side};
use crate::policy::Backoff;
use crate::transport::{ErrorKind, Fetch, TransportError};

/// How long the end of the fetch half may take.
const CLOSING: Duration = Duration::from_secs(5);

/// How long a fetch has to wait without an error, after one, to count as working.
const PROBATION: Duration = Duration::from_secs(1);

/// The backoff of a transport that fails.
pub(super) fn trouble_backoff() -> Backoff {
    Backoff::exponential(Duration::from_millis(100)).cap(Duration::from_secs(5))
}

/// The wait after so many failures in a row. Never shorter than half the ceiling: full jitter alone could spin.
pub(super) fn trouble_wait(failures: u32) -> Duration {
    let backoff = trouble_backoff();
    backoff.ceiling(failures) / 2 + backoff.delay(failures, fastrand::f64()) / 2
}

/// Fetches until the subscription stops or fails for good, then ends the fetch half.
pub(super) async fn fetch_all<F: Fetch>(mut half: F, buffer: Arc<Buffer<F::Delivery>>) {
    let shared = buffer.shared.clone();
    // It outlives the work: what a dropped fetch had brought is released, not lost.
    let mut chunk = Vec::new();
    {
        let mut stopped = pin!(shared.signals.stop.cancelled());
        let mut work = pin!(fetch_until_failed(&mut half, &mut chunk, &buffer, &shared));
        tokio::select! {
            biased;
            () = &mut stopped => {}
            error = &mut work => shared.fail(&error),
        }
    }
    if !chunk.is_empty() {
        buffer.push(&mut chunk);
    }
    match timeout(CLOSING, half.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(subscription = %shared.name, %error, "the fetch half did not end cleanly"),
        Err(_) => tracing::warn!(subscription = %shared.name, "the fetch half did not end within {CLOSING:?}"),
    }
}

/// Fetches; returns the error that ends the subscription.
async fn fetch_until_failed<F: Fetch>(
    half: &mut F,
    chunk: &mut Vec<F::Delivery>,
    buffer: &Buffer<F::Delivery>,
    shared: &Shared,
) -> TransportError {
    let mut paused = shared.signals.paused.subscribe();
    let mut failures = 0u32;
    loop {
        let room = loop {
            if failures > 0 && *paused.borrow() {
                // Nothing is fetched that could show whether the trouble is over.
                failures = 0;
                shared.mended(Side::Fetching);
            }
            // The sender lives in `shared`, so waiting cannot fail.
            let _ = paused.wait_for(|paused| !paused).await;
            match buffer.room() {
                0 => shared.signals.room.notified().await,
                room => break room,
            }
        };
        let fetched = tokio::select! {
            biased;
            fetched = on_probation(half.fetch(room, chunk), &mut failures, shared) => fetched,
            _ = paused.wait_for(|paused| *paused) => Ok(()),
        };
        let error = match fetched {
            Ok(()) if !chunk.is_empty() => {
                if failures > 0 {
                    failures = 0;
                    shared.mended(Side::Fetching);
                }
                buffer.push(chunk);
                continue;
            }
            Ok(()) if *paused.borrow() => continue,
            Ok(()) => TransportError::new(
                ErrorKind::Unavailable,
                "the transport's fetch returned without a delivery",
            ),
            Err(error) => error,
        };
        if !chunk.is_empty() {
            buffer.push(chunk);
        }
        let mut error = error;
        loop {
            if !error.is_transient() {
                return error;
            }
            failures = failures.saturating_add(1);
            let wait = trouble_wait(failures);
            shared.troubled(Side::Fetching, &error, wait);
            sleep(wait).await;
            match half.recover().await {
                Ok(()) => break,
                Err(again) => error = again,
            }
        }
    }
}

/// Awaits a fetch. After a failure, one that has waited for long enough without another counts as working, message or not.
async fn on_probation<T>(fetch: impl Future<Output = T>, failures: &mut u32, shared: &Shared) -> T {
    if *failures == 0 {
        return fetch.await;
    }
    let mut fetch = pin!(fetch);
    let probation = PROBATION.max(trouble_backoff().ceiling(*failures));
    if let Ok(fetched) = timeout(probation, &mut fetch).await {
        return fetched;
    }
    *failures = 0;
    shared.mended(Side::Fetching);
    fetch.await
}
