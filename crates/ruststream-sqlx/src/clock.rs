//! The one clock of a connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Backward steps up to this long are smoothed over, so that messages keep the order they were published in.
const SMALL_STEP: i64 = 1_000;

/// The latest time: far from where sums overflow.
const LIMIT: i64 = i64::MAX / 4;

/// Tells the time, in milliseconds since 1970, to everything that one connection writes.
#[derive(Clone)]
pub(crate) struct Clock {
    source: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    last: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self::new(SystemTime::now)
    }

    pub(crate) fn new(source: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            source: Arc::new(source),
            last: Arc::new(AtomicI64::new(0)),
        }
    }

    /// The time now. A clock that was set back by more than a moment is believed.
    pub(crate) fn now(&self) -> i64 {
        let now = to_millis((self.source)());
        let last = self.last.load(Ordering::Relaxed);
        if now < last && last - now <= SMALL_STEP {
            return last;
        }
        self.last.store(now, Ordering::Relaxed);
        now
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

pub(crate) fn to_millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(LIMIT),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(LIMIT),
    }
}

pub(crate) fn from_millis(millis: i64) -> SystemTime {
    let offset = Duration::from_millis(millis.unsigned_abs());
    let time = if millis < 0 {
        UNIX_EPOCH.checked_sub(offset)
    } else {
        UNIX_EPOCH.checked_add(offset)
    };
    time.unwrap_or(UNIX_EPOCH)
}

/// The milliseconds to add to the time for something to be due after `duration`, bounded so that the sum fits.
///
/// The time loses up to a millisecond when it is read, so there is one more: nothing comes early.
pub(crate) fn millis(duration: Duration) -> i64 {
    if duration.is_zero() {
        return 0;
    }
    let whole = duration.as_nanos().div_ceil(1_000_000) + 1;
    i64::try_from(whole).unwrap_or(LIMIT).min(LIMIT)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_small_step_back_keeps_the_order_and_a_large_one_is_believed() {
        let time = Arc::new(Mutex::new(UNIX_EPOCH + Duration::from_secs(100)));
        let clock = {
            let time = Arc::clone(&time);
            Clock::new(move || *time.lock().unwrap())
        };
        assert_eq!(clock.now(), 100_000);
        *time.lock().unwrap() -= Duration::from_millis(500);
        assert_eq!(clock.now(), 100_000);
        *time.lock().unwrap() -= Duration::from_secs(50);
        assert_eq!(clock.now(), 49_500);
    }

    #[test]
    fn durations_never_end_early_and_never_overflow() {
        assert_eq!(millis(Duration::from_micros(1)), 2);
        assert_eq!(millis(Duration::from_millis(80)), 81);
        assert_eq!(millis(Duration::ZERO), 0);
        assert!(
            to_millis(SystemTime::now())
                .checked_add(millis(Duration::MAX))
                .is_some()
        );
    }
}
