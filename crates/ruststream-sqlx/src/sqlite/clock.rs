//! The one clock of a connection: a file has none of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use crate::clock::to_millis;

/// Backward steps up to this long are smoothed over, so that messages keep the order they were published in.
const SMALL_STEP: i64 = 1_000;

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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, UNIX_EPOCH};

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
}
