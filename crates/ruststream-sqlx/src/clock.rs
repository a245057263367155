//! Times and durations as the numbers that databases take.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The latest time: far from where sums overflow.
const LIMIT: i64 = i64::MAX / 4;

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
    use super::*;

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
