//! Time in tests: stopping tokio's clock, a deadline by the clock on the wall, and durations for people.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Stops tokio's clock, where it is not stopped already.
pub(super) fn stop() {
    assert!(
        matches!(Handle::current().runtime_flavor(), RuntimeFlavor::CurrentThread),
        "only a current-thread runtime can stop its clock: write `#[tokio::test]` without a flavor, or start the app by \
         `TestApp::start` and let the clock run"
    );
    if !stands_still() {
        tokio::time::pause();
    }
}

/// Whether tokio's clock is stopped: whether it misses that time passes.
fn stands_still() -> bool {
    let before = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "it is the clock on the wall that is meant")]
    let wall = std::time::Instant::now();
    while wall.elapsed().is_zero() {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

/// Ends the watch of a [`deadline`] when dropped.
pub(super) struct Watching(#[expect(dead_code, reason = "its drop is the signal")] SyncSender<()>);

/// Completes when `limit` has passed by the clock on the wall, however tokio's clock is moved.
pub(super) fn deadline(limit: Duration) -> (oneshot::Receiver<()>, Watching) {
    let (passed, expired) = oneshot::channel();
    let (watching, ends) = sync_channel(0);
    thread::spawn(move || {
        if ends.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // Whoever waited may be gone meanwhile.
            let _ = passed.send(());
        }
    });
    (expired, Watching(watching))
}

/// A duration in the units that people use: `1h 20m`, `250ms`.
pub(super) fn text(time: Duration) -> String {
    if time.is_zero() {
        return "0ms".to_owned();
    }
    if time < Duration::from_secs(1) {
        return match time.as_millis() {
            0 => format!("{}µs", time.as_micros()),
            millis => format!("{millis}ms"),
        };
    }
    let seconds = time.as_secs();
    let millis = u64::from(time.subsec_millis());
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        // Beside hours, nobody asks for them.
        (if seconds < 60 { millis } else { 0 }, "ms"),
    ];
    let words = parts.iter().filter(|(number, _)| *number > 0);
    words
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (time, expected) in [
            (Duration::ZERO, "0ms"),
            (Duration::from_micros(7), "7µs"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_millis(1_500), "1s 500ms"),
            (Duration::from_mins(80), "1h 20m"),
            (Duration::from_secs(90_061), "1d 1h 1m 1s"),
        ] {
            assert_eq!(text(time), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_clock_is_known_and_not_stopped_twice() {
        assert!(stands_still());
        stop();
    }

    #[tokio::test]
    async fn a_running_clock_is_known_and_stopped() {
        assert!(!stands_still());
        stop();
        assert!(stands_still());
    }
}
