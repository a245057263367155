//! The settings of one subscription.

use std::sync::Arc;
use std::time::Duration;

use super::observer::Observer;
use crate::policy::{OnUndecodable, OrderBy, RetryRules};

/// A time beyond this is as good as for ever, and stays inside what an `Instant` can say.
pub(crate) const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// The settings of one subscription.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) batch: Option<Batch>,
    pub(crate) prefetch: Option<usize>,
    pub(crate) retry: RetryRules,
    pub(crate) dead_letter: Option<Arc<str>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ordered_by: Option<OrderBy>,
    pub(crate) on_undecodable: OnUndecodable,
    /// Looks on; a test does.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// How a batch is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) size: usize,
    /// How long the first message waits for others.
    pub(crate) age: Duration,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            size: 64,
            age: Duration::from_millis(20),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 1,
            batch: None,
            prefetch: None,
            retry: RetryRules::default(),
            dead_letter: None,
            timeout: None,
            ordered_by: None,
            on_undecodable: OnUndecodable::default(),
            observer: None,
        }
    }
}

impl Settings {
    /// What is wrong with them, as a sentence that names the fix.
    pub(crate) fn problem(&self) -> Option<String> {
        let zero = |what: &str, fix: &str| Some(format!("`{what}` cannot be zero: {fix}"));
        if self.workers == 0 {
            return zero(
                ".workers(0)",
                "a subscription needs at least one worker; to stop it for a while, pause it",
            );
        }
        if self.prefetch == Some(0) {
            return zero(".prefetch(0)", "leave it out, and it follows the speed of the handler");
        }
        if self.batch.is_some_and(|batch| batch.size == 0) {
            return zero(".batch(0)", "a batch holds at least one message");
        }
        if self.timeout == Some(Duration::ZERO) {
            return zero(".timeout(0)", "leave it out for no time-out");
        }
        if let (Some(batch), Some(prefetch)) = (self.batch, self.prefetch)
            && prefetch < batch.size
        {
            return Some(format!(
                "`.prefetch({prefetch})` is smaller than `.batch({})`: no batch would ever fill; raise the one or lower the other",
                batch.size
            ));
        }
        None
    }
}
