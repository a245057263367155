//! Milliseconds, and the ids of entries, which begin with them.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest delay: three hundred years, far from where the server's sums overflow.
const LONGEST: u64 = 10_000_000_000_000;

/// The milliseconds that something has to wait at least; there is one more where it is not whole, so that nothing comes early.
pub(crate) fn millis(duration: Duration) -> i64 {
    let whole = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(whole).unwrap_or(LONGEST).min(LONGEST).cast_signed()
}

/// Milliseconds since 1970.
pub(crate) fn since_epoch(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(LONGEST)
}

/// The id of a stream entry: when it was added, in milliseconds since 1970 by the server's clock unless its author chose
/// another, and its number within the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since 1970.
    pub millis: u64,
    /// The number within the millisecond.
    pub sequence: u64,
}

impl EntryId {
    /// The id just before this one.
    pub(crate) fn before(self) -> Self {
        match (self.millis, self.sequence) {
            (0, 0) => self,
            (millis, 0) => Self {
                millis: millis - 1,
                sequence: u64::MAX,
            },
            (millis, sequence) => Self {
                millis,
                sequence: sequence - 1,
            },
        }
    }

    /// The time of the id, where it is one.
    pub fn time(self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.millis))
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

/// A text is no id of an entry: two numbers with a `-` in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidEntryId;

impl fmt::Display for InvalidEntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry id is two numbers with a `-` in between, such as 1700000000000-0")
    }
}

impl std::error::Error for InvalidEntryId {}

impl FromStr for EntryId {
    type Err = InvalidEntryId;

    fn from_str(text: &str) -> Result<Self, InvalidEntryId> {
        let (millis, sequence) = text.split_once('-').ok_or(InvalidEntryId)?;
        Ok(Self {
            millis: millis.parse().map_err(|_| InvalidEntryId)?,
            sequence: sequence.parse().map_err(|_| InvalidEntryId)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_order_by_number_and_know_what_is_before() {
        let id: EntryId = "1700000000000-0".parse().unwrap();
        assert!("999-9".parse::<EntryId>().unwrap() < id);
        assert!(id.before() < id);
        assert_eq!(id.before().to_string(), format!("1699999999999-{}", u64::MAX));
        let first: EntryId = "0-0".parse().unwrap();
        assert_eq!(first.before(), first);
        assert!("12".parse::<EntryId>().is_err());
        assert!("1-2-3".parse::<EntryId>().is_err());
    }

    #[test]
    fn a_delay_is_never_cut_short_and_never_overflows() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(80)), 80);
        assert_eq!(millis(Duration::MAX), LONGEST.cast_signed());
    }
}
