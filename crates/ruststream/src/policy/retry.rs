//! How often to try, and after which error.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Backoff;

/// How often a message is tried, and how long to wait in between.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::policy::Retry;
///
/// // Up to 8 attempts; after the n-th the wait is drawn from 0 to 200 ms * 2^(n-1), never above a minute.
/// let retry = Retry::exponential(Duration::from_millis(200)).cap(Duration::from_secs(60)).attempts(8);
/// # let _ = retry;
/// ```
#[derive(Debug, Clone)]
pub struct Retry {
    backoff: Backoff,
    attempts: u32,
}

impl Retry {
    /// How often a message is tried where nothing else is set.
    pub const DEFAULT_ATTEMPTS: u32 = 5;

    /// Waits as `backoff` says.
    pub fn with_backoff(backoff: Backoff) -> Self {
        Self {
            backoff,
            attempts: Self::DEFAULT_ATTEMPTS,
        }
    }

    /// Waits between zero and `base * 2^(attempt - 1)`: exponential backoff with full jitter.
    pub fn exponential(base: Duration) -> Self {
        Self::with_backoff(Backoff::exponential(base))
    }

    /// Waits the same time after every attempt.
    pub fn fixed(delay: Duration) -> Self {
        Self::with_backoff(Backoff::fixed(delay))
    }

    /// Does not try again: one attempt, then the dead letter. Attempts are counted when a message is delivered, so what a process
    /// had in hand when it died counts as tried, begun or not.
    pub fn never() -> Self {
        Self::fixed(Duration::ZERO).attempts(1)
    }

    /// Sets how often a message is tried, the first time included. Zero counts as one.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Tries for ever.
    #[must_use]
    pub fn forever(self) -> Self {
        self.attempts(u32::MAX)
    }

    /// Sets the longest wait.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.backoff = self.backoff.cap(cap);
        self
    }

    /// How long to wait after the attempt of this number failed, or `None` if it was the last.
    pub fn after(&self, attempt: u32, random: f64) -> Option<Duration> {
        self.goes_on_after(attempt).then(|| self.backoff.delay(attempt, random))
    }

    /// Whether there is another attempt after that of this number.
    pub(crate) fn goes_on_after(&self, attempt: u32) -> bool {
        attempt < self.attempts || self.attempts == u32::MAX
    }
}

impl Default for Retry {
    /// Five attempts, exponential from one second.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1))
    }
}

type Rule = Arc<dyn Fn(&(dyn Any + Send)) -> Option<Retry> + Send + Sync>;

/// The retry policy of a subscription: one for all errors, and exceptions by error.
#[derive(Clone, Default)]
pub(crate) struct RetryRules {
    pub(crate) otherwise: Retry,
    rules: Vec<Rule>,
    most_by_exception: u32,
}

impl RetryRules {
    /// How many attempts any policy may grant where the exceptions are the user's functions, which cannot be asked beforehand.
    const MOST_BY_FUNCTION: u32 = 100;

    /// Adds an exception: where the error is an `E`, `retry` holds.
    pub(crate) fn on_type<E: 'static>(&mut self, retry: Retry) {
        self.most_by_exception = self.most_by_exception.max(retry.attempts);
        self.rules
            .push(Arc::new(move |error| error.is::<E>().then(|| retry.clone())));
    }

    /// The most attempts that a message can be granted. One delivered more often never came to an end: it ends its process.
    pub(crate) fn most_attempts(&self) -> u32 {
        self.otherwise.attempts.max(self.most_by_exception)
    }

    /// Adds an exception: where the error is an `E` and `choose` answers a policy, that one holds.
    pub(crate) fn on<E: 'static>(&mut self, choose: impl Fn(&E) -> Option<Retry> + Send + Sync + 'static) {
        self.most_by_exception = self.most_by_exception.max(Self::MOST_BY_FUNCTION);
        self.rules
            .push(Arc::new(move |error| error.downcast_ref::<E>().and_then(&choose)));
    }

    /// The wait after `attempt` failed with `error`, or `None` if it was the last. Earlier exceptions win.
    pub(crate) fn after(&self, attempt: u32, error: Option<&(dyn Any + Send)>, random: f64) -> Option<Duration> {
        let exception = error.and_then(|error| self.rules.iter().find_map(|rule| rule(error)));
        exception.as_ref().unwrap_or(&self.otherwise).after(attempt, random)
    }
}

impl fmt::Debug for RetryRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryRules")
            .field("otherwise", &self.otherwise)
            .field("exceptions", &self.rules.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempt_is_not_followed_by_another() {
        let retry = Retry::fixed(Duration::from_secs(1)).attempts(3);
        assert_eq!(retry.after(2, 0.5), Some(Duration::from_secs(1)));
        assert_eq!(retry.after(3, 0.5), None);
        assert_eq!(retry.forever().after(u32::MAX, 0.5), Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_exception_holds_for_its_type_and_value() {
        let mut rules = RetryRules {
            otherwise: Retry::fixed(Duration::from_secs(9)),
            ..RetryRules::default()
        };
        rules.on(|code: &u32| (*code == 404).then(Retry::never));
        assert_eq!(rules.after(1, Some(&404u32), 0.0), None);
        assert_eq!(rules.after(1, Some(&500u32), 0.0), Some(Duration::from_secs(9)));
        assert_eq!(rules.after(1, Some(&"text"), 0.0), Some(Duration::from_secs(9)));
        assert_eq!(rules.after(1, None, 0.0), Some(Duration::from_secs(9)));
    }
}
