//! How long to wait before the next attempt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before the next attempt: a delay for every attempt number, never above its cap.
#[derive(Clone)]
pub struct Backoff {
    shape: Shape,
    cap: Duration,
}

type Own = Arc<dyn Fn(u32) -> Duration + Send + Sync>;

#[derive(Clone)]
enum Shape {
    Fixed(Duration),
    Exponential(Duration),
    Own(Own),
}

impl Backoff {
    /// The cap that holds where none is set.
    pub const DEFAULT_CAP: Duration = Duration::from_mins(10);

    /// The same delay after every attempt.
    pub fn fixed(delay: Duration) -> Self {
        Self {
            shape: Shape::Fixed(delay),
            cap: Self::DEFAULT_CAP.max(delay),
        }
    }

    /// A delay drawn evenly from zero to `base * 2^(attempt - 1)`: exponential backoff with full jitter.
    pub fn exponential(base: Duration) -> Self {
        Self {
            shape: Shape::Exponential(base),
            cap: Self::DEFAULT_CAP.max(base),
        }
    }

    /// The delay that `delay` answers for the attempt that failed, 1 for the first.
    pub fn own(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self {
            shape: Shape::Own(Arc::new(delay)),
            cap: Self::DEFAULT_CAP,
        }
    }

    /// Sets the longest delay.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// The longest delay after the attempt of this number failed, before jitter: between zero and the cap, and never shorter
    /// than after the attempt before.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let uncapped = match &self.shape {
            Shape::Fixed(delay) => *delay,
            Shape::Exponential(base) => {
                let doublings = attempt.saturating_sub(1);
                1u32.checked_shl(doublings)
                    .and_then(|factor| base.checked_mul(factor))
                    .unwrap_or(if base.is_zero() { Duration::ZERO } else { Duration::MAX })
            }
            Shape::Own(delay) => delay(attempt),
        };
        uncapped.min(self.cap)
    }

    /// The delay after the attempt of this number failed. `random` is even over `0.0..1.0` and gives the jitter.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let ceiling = self.ceiling(attempt);
        match self.shape {
            // What is too long for the product is the ceiling itself.
            Shape::Exponential(_) => {
                let seconds = ceiling.as_secs_f64() * random.clamp(0.0, 1.0);
                Duration::try_from_secs_f64(seconds).map_or(ceiling, |delay| delay.min(ceiling))
            }
            Shape::Fixed(_) | Shape::Own(_) => ceiling,
        }
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Fixed(delay) => write!(f, "fixed({delay:?}, at most {:?})", self.cap),
            Shape::Exponential(base) => write!(f, "exponential({base:?}, at most {:?})", self.cap),
            Shape::Own(_) => write!(f, "own(at most {:?})", self.cap),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        let any_delay = || (any::<u64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
        (any_delay(), any_delay(), 0..3).prop_map(|(delay, cap, shape)| {
            match shape {
                0 => Backoff::fixed(delay),
                1 => Backoff::exponential(delay),
                _ => Backoff::own(move |attempt| delay.saturating_mul(attempt)),
            }
            .cap(cap)
        })
    }

    proptest! {
        #[test]
        fn a_delay_is_between_zero_and_the_cap_for_every_attempt(
            backoff in any_backoff(), attempt: u32, random in 0.0..1.0,
        ) {
            prop_assert!(backoff.delay(attempt, random) <= backoff.cap);
        }

        #[test]
        fn a_ceiling_never_shrinks_as_attempts_grow(backoff in any_backoff(), attempt in 0..u32::MAX) {
            prop_assert!(backoff.ceiling(attempt) <= backoff.ceiling(attempt + 1));
        }
    }

    #[test]
    fn the_exponential_ceiling_doubles_up_to_the_cap() {
        let backoff = Backoff::exponential(Duration::from_secs(1)).cap(Duration::from_secs(5));
        let ceilings: Vec<_> = [0, 1, 2, 3, 4, 40, u32::MAX]
            .map(|attempt| backoff.ceiling(attempt).as_secs())
            .into();
        assert_eq!(ceilings, [1, 1, 2, 4, 5, 5, 5]);
    }

    #[test]
    fn the_jitter_covers_the_whole_range() {
        let backoff = Backoff::exponential(Duration::from_secs(8));
        assert_eq!(backoff.delay(1, 0.0), Duration::ZERO);
        assert_eq!(backoff.delay(1, 0.5), Duration::from_secs(4));
        let endless = Backoff::exponential(Duration::MAX).cap(Duration::MAX);
        assert_eq!(endless.delay(9, 1.0), Duration::MAX);
    }
}
