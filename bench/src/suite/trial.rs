//! One call of a loop: what it is to do, and what it did.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Failed;

/// One call of a loop: so many messages, each to be told to the [`Tally`], and a part that is [timed](Self::timed).
pub struct Trial<T> {
    transport: Arc<T>,
    messages: u64,
    tally: Tally,
    took: Arc<AtomicU64>,
}

impl<T> Trial<T> {
    pub(super) fn new(transport: Arc<T>, messages: u64) -> Self {
        Self {
            transport,
            messages,
            tally: Tally::new(messages),
            took: Arc::default(),
        }
    }

    /// Where the scenario runs.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// How many messages the loop is to handle or publish: a multiple of [`STEP`](super::STEP), so that it can be shared out
    /// evenly.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Where each message is counted. To be told when a message is handled, or its publish confirmed.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Times a part of the call. Several parts add up.
    ///
    /// # Errors
    ///
    /// Those of `work`.
    pub async fn timed<R>(&self, work: impl Future<Output = Result<R, Failed>>) -> Result<R, Failed> {
        let start = Instant::now();
        let result = work.await?;
        let nanoseconds = u64::try_from(start.elapsed().as_nanos())?;
        self.took.fetch_add(nanoseconds, Ordering::Relaxed);
        Ok(result)
    }

    /// Checks what the call left behind.
    ///
    /// # Errors
    ///
    /// Where `found` is not what it should be; the text names both.
    pub fn expect(&self, what: &str, found: u64, wanted: u64) -> Result<(), Failed> {
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{what}: {found}, and it should be {wanted}").into())
        }
    }

    pub(super) fn clock(&self) -> Clock {
        Clock(Arc::clone(&self.took))
    }
}

/// How long the timed parts of a trial took.
pub(super) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Counts messages up to the number that the loop was given. Clones count together.
#[derive(Debug, Clone)]
pub struct Tally(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    wanted: u64,
    count: AtomicU64,
    all: Notify,
}

impl Tally {
    fn new(wanted: u64) -> Self {
        Self(Arc::new(Counted {
            wanted,
            count: AtomicU64::new(0),
            all: Notify::new(),
        }))
    }

    /// Counts one message.
    pub fn one(&self) {
        self.many(1);
    }

    /// Counts several messages at once.
    pub fn many(&self, messages: u64) {
        let before = self.0.count.fetch_add(messages, Ordering::Relaxed);
        if before < self.0.wanted && before + messages >= self.0.wanted {
            self.0.all.notify_waiters();
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Waits until all were counted.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn all(&self) {
        let mut told = pin!(self.0.all.notified());
        // Before the look at the count: what is told from now on is heard.
        told.as_mut().enable();
        if self.count() < self.0.wanted {
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_timed_parts_add_up_and_what_lies_between_is_not_timed() {
        tokio::time::pause();
        let trial = Trial::new(Arc::new(()), 512);
        for _ in 0..2 {
            trial
                .timed(async {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Ok(())
                })
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        // The timer of tokio ticks in milliseconds.
        assert_eq!(trial.clock().took().as_secs(), 6);
    }

    #[tokio::test]
    async fn who_waits_for_all_is_woken_by_the_last_message() {
        let tally = Trial::new(Arc::new(()), 512).tally();
        let waiting = tokio::spawn({
            let tally = tally.clone();
            async move { tally.all().await }
        });
        tally.many(511);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        tally.one();
        waiting.await.unwrap();
        tally.all().await;
    }
}
