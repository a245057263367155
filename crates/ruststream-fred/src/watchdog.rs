//! One deadline for all that is sent on a link.
//!
//! A timer of its own for each message would cost more than the rest of the call. Here time goes in steps of a quarter of the deadline; what
//! was begun before the last four and has not ended is overdue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// The steps of a deadline.
const STEPS: usize = 4;

/// The steps that are told apart: those of the deadline, and the one that has begun.
const ROUND: usize = STEPS + 1;

/// Counts what is under way by the step in which it began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watchdog {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    step: AtomicUsize,
    under_way: [AtomicUsize; ROUND],
    barked: AtomicBool,
}

/// Something that is under way. Dropping it ends it.
pub(crate) struct Watched<'a> {
    under_way: &'a AtomicUsize,
}

impl Watchdog {
    /// Something begins.
    pub(crate) fn watch(&self) -> Watched<'_> {
        let step = self.counts.step.load(Ordering::Relaxed);
        let under_way = &self.counts.under_way[step % ROUND];
        under_way.fetch_add(1, Ordering::Relaxed);
        Watched { under_way }
    }

    pub(crate) fn has_barked(&self) -> bool {
        self.counts.barked.load(Ordering::Relaxed)
    }

    /// Returns when something has been under way for the deadline, and a quarter of it more at most.
    pub(crate) async fn bark(self, deadline: Duration) {
        loop {
            sleep(deadline / STEPS as u32).await;
            let step = self.counts.step.load(Ordering::Relaxed) + 1;
            // The next step takes the place of the oldest, so that has to be empty.
            if self.counts.under_way[step % ROUND].load(Ordering::Relaxed) > 0 {
                self.counts.barked.store(true, Ordering::Relaxed);
                return;
            }
            self.counts.step.store(step, Ordering::Relaxed);
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_overdue_is_found_and_what_ends_in_time_is_not() {
        let deadline = Duration::from_secs(4);
        let watchdog = Watchdog::default();
        let barking = tokio::spawn(watchdog.clone().bark(deadline));
        for _ in 0..20 {
            let watched = watchdog.watch();
            sleep(deadline).await;
            drop(watched);
        }
        assert!(!watchdog.has_barked());
        let _watched = watchdog.watch();
        let began = Instant::now();
        barking.await.expect("it barks");
        let after = began.elapsed();
        assert!(after >= deadline && after <= deadline * 5 / 4, "{after:?}");
        assert!(watchdog.has_barked());
    }
}
