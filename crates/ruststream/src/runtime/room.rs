//! How many messages to have in hand: enough to keep the workers busy, too few to be hoarded by slow ones.

use std::num::NonZeroU64;

use super::Settings;

/// How long a handler takes for one message, in nanoseconds.
pub(super) type ServiceTime = NonZeroU64;

/// The work that is fetched ahead of the workers: 50 ms.
const AHEAD: u64 = 50_000_000;
/// The most that is fetched ahead, however fast the handler is.
const MOST_AHEAD: u64 = 1024;
/// The most bytes of payload that are fetched ahead.
const MOST_BYTES: usize = 64 << 20;
/// The most that one subscription holds unsettled in all: what runs, waits, is kept for a retry, or has its receipt on the way.
const MOST_IN_HAND: usize = 16 * 1024;
/// The work that a worker takes at once from the shared buffer, while its handler does not wait: 1 ms.
const AT_ONCE: u64 = 1_000_000;
/// The work that is not worth sharing: 200 us.
const ALONE: u64 = 200_000;
/// The most messages that a worker takes at once.
const MOST_AT_ONCE: u64 = 256;

/// What is in hand of a subscription.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InHand {
    /// Fetched and not settled, in all.
    pub(super) all: usize,
    /// Ready to be handled.
    pub(super) ready: usize,
    /// In the hands of workers.
    pub(super) taken: usize,
    /// The mean size of a payload, in bytes.
    pub(super) mean_bytes: usize,
}

/// How many messages may be active at a time.
pub(super) fn target(settings: &Settings, service_time: Option<ServiceTime>, mean_bytes: usize) -> usize {
    if let Some(prefetch) = settings.prefetch {
        return prefetch;
    }
    let running = settings.workers * settings.batch.map_or(1, |batch| batch.size);
    let ahead = match service_time {
        None => 0,
        Some(time) => (AHEAD.saturating_mul(settings.workers as u64) / time).min(MOST_AHEAD) as usize,
    };
    let bytes = MOST_BYTES / mean_bytes.max(1);
    running + ahead.min(bytes)
}

/// How many messages may be fetched now; zero for none.
pub(super) fn room(settings: &Settings, service_time: Option<ServiceTime>, in_hand: InHand) -> usize {
    let target = target(settings, service_time, in_hand.mean_bytes);
    let room = if settings.prefetch.is_some() {
        target.saturating_sub(in_hand.all)
    } else {
        let most = MOST_IN_HAND.min(MOST_BYTES * 2 / in_hand.mean_bytes.max(1)).max(target);
        target
            .saturating_sub(in_hand.ready + in_hand.taken)
            .min(most.saturating_sub(in_hand.all))
    };
    // While there is work to do, a fetch worth its round trip is waited for. A batch that is not full is no work yet.
    let enough = settings.batch.map_or(1, |batch| batch.size);
    if in_hand.ready >= enough && room < target / 4 {
        0
    } else {
        room
    }
}

/// How many workers so many ready messages are worth waking: work that one is through with before another has woken is its own.
pub(super) fn hands(settings: &Settings, service_time: Option<ServiceTime>, ready: usize) -> usize {
    if settings.workers <= 1 {
        return 1;
    }
    let by_time = match service_time {
        None => ready,
        Some(time) => {
            let work = time.get().saturating_mul(ready as u64);
            work.div_ceil(ALONE).min(ready as u64) as usize
        }
    };
    by_time.clamp(1, settings.workers)
}

/// How many of `ready` messages a worker takes at once, to run one after the other while its handler does not wait.
pub(super) fn at_once(settings: &Settings, service_time: Option<ServiceTime>, ready: usize) -> usize {
    let by_time = match service_time {
        None => 1,
        Some(time) => (AT_ONCE / time).clamp(1, MOST_AT_ONCE) as usize,
    };
    by_time.min(ready.div_ceil(hands(settings, service_time, ready)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(number: u64) -> Option<ServiceTime> {
        ServiceTime::new(number)
    }

    fn settings(workers: usize) -> Settings {
        Settings {
            workers,
            ..Settings::default()
        }
    }

    #[test]
    fn a_slow_handler_hoards_nothing() {
        let second = nanos(1_000_000_000);
        assert_eq!(target(&settings(8), second, 100), 8);
        assert_eq!(at_once(&settings(8), second, 100), 1);
    }

    #[test]
    fn an_unknown_handler_is_given_one_message_a_worker() {
        assert_eq!(target(&settings(4), None, 100), 4);
    }

    #[test]
    fn a_fast_handler_is_fetched_ahead_for_up_to_the_bounds() {
        let fast = nanos(1_000);
        assert_eq!(target(&settings(1), fast, 100), 1 + MOST_AHEAD as usize);
        assert_eq!(target(&settings(1), fast, 16 << 20), 1 + 4);
        assert_eq!(at_once(&settings(1), fast, 1000), MOST_AT_ONCE as usize);
        assert_eq!(at_once(&settings(4), nanos(8_000), 100), 25);
    }

    #[test]
    fn work_of_a_moment_is_not_shared() {
        assert_eq!(hands(&settings(8), nanos(100), 500), 1);
        assert_eq!(hands(&settings(8), nanos(1_000_000), 500), 8);
        assert_eq!(hands(&settings(8), None, 3), 3);
    }

    #[test]
    fn unsettled_messages_are_bounded_whatever_waits() {
        let in_hand = InHand {
            all: MOST_IN_HAND,
            mean_bytes: 1,
            ..InHand::default()
        };
        assert_eq!(room(&settings(1), None, in_hand), 0);
    }

    #[test]
    fn a_fixed_prefetch_counts_all_that_is_unsettled() {
        let fixed = Settings {
            prefetch: Some(50),
            ..settings(1)
        };
        assert_eq!(
            room(
                &fixed,
                None,
                InHand {
                    all: 20,
                    ready: 9,
                    taken: 1,
                    mean_bytes: 1
                }
            ),
            30
        );
    }
}
