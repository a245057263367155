//! What may be concluded from the rounds.

use std::collections::BTreeMap;

use crate::results::{Bound, Conclusion, Loop, Verdict};

/// From this part of its time on, the baseline counts as waiting for the server.
const BOUND_FROM: f64 = 0.5;

/// The figures of a loop, from its rounds in messages a second.
pub(super) fn summary(rounds: Vec<f64>, messages: u64) -> Loop {
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    assert!(count > 0, "a loop has at least one round");
    Loop {
        best: sorted[count - 1],
        median: f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
        worst: sorted[0],
        rounds,
        messages,
    }
}

/// How far the rounds lie apart, as a part of the best.
fn spread(one: &Loop) -> f64 {
    (one.best - one.worst) / one.best
}

/// Holds one loop against another.
pub(super) fn verdict(one: &Loop, against: &str, other: &Loop) -> Verdict {
    let ratio = one.best / other.best;
    let spread = spread(one).max(spread(other));
    // As a part of the faster of the two, so that it does not matter which is held against which.
    let difference = (one.best - other.best).abs() / one.best.max(other.best);
    let verdict = if difference <= spread {
        Conclusion::Indistinguishable
    } else if ratio > 1.0 {
        Conclusion::Faster
    } else {
        Conclusion::Slower
    };
    Verdict {
        against: against.to_owned(),
        ratio: rounded(ratio, 4),
        spread: rounded(spread, 4),
        verdict,
    }
}

/// Holds all loops but `against` against it.
pub(super) fn verdicts(loops: &BTreeMap<String, Loop>, against: &str) -> BTreeMap<String, Verdict> {
    let Some(other) = loops.get(against) else {
        return BTreeMap::new();
    };
    loops
        .iter()
        .filter(|(name, _)| *name != against)
        .map(|(name, one)| (name.clone(), verdict(one, against, other)))
        .collect()
}

/// The part of its time that a task spends on round trips, of a loop whose `tasks` handle `rate` messages a second together.
pub(super) fn round_trip_share(trips: f64, round_trip_us: f64, rate: f64, tasks: usize) -> f64 {
    let message_us = 1e6 * tasks as f64 / rate;
    rounded((trips * round_trip_us / message_us).min(1.0), 3)
}

/// Whether a row is bound by what its baseline waits for.
pub(super) fn bound(share: Option<f64>, by: Bound) -> Option<Bound> {
    share.is_some_and(|share| share >= BOUND_FROM).then_some(by)
}

/// Rounds to so many decimals, so that the file shows no digits that mean nothing.
pub(super) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "figures of few digits")]
mod tests {
    use super::*;

    fn of(rounds: &[f64]) -> Loop {
        summary(rounds.to_vec(), 512)
    }

    #[test]
    fn the_summary_keeps_the_order_of_the_rounds() {
        let one = of(&[90.0, 100.0, 70.0]);
        assert_eq!((one.best, one.median, one.worst), (100.0, 90.0, 70.0));
        assert_eq!(one.rounds, [90.0, 100.0, 70.0]);
        assert_eq!(of(&[1.0, 4.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(of(&[5.0]).median, 5.0);
    }

    #[test]
    fn a_difference_within_the_spread_of_either_loop_is_no_difference() {
        let steady = of(&[100.0, 99.0, 99.5]);
        let unsteady = of(&[96.0, 120.0, 110.0]);
        for (one, other) in [(&steady, &unsteady), (&unsteady, &steady)] {
            let verdict = verdict(one, "bare", other);
            assert_eq!(verdict.verdict, Conclusion::Indistinguishable, "{verdict:?}");
            assert_eq!(verdict.spread, 0.2);
        }
    }

    #[test]
    fn a_difference_beyond_both_spreads_has_a_direction() {
        let slow = of(&[100.0, 99.0]);
        let fast = of(&[110.0, 108.0]);
        let faster = verdict(&fast, "bare", &slow);
        assert_eq!((faster.ratio, faster.verdict), (1.1, Conclusion::Faster));
        assert_eq!(faster.against, "bare");
        assert_eq!(verdict(&slow, "bare", &fast).verdict, Conclusion::Slower);
        assert_eq!(verdict(&slow, "bare", &slow).verdict, Conclusion::Indistinguishable);
    }

    #[test]
    fn every_other_loop_is_judged_and_the_one_itself_is_not() {
        let loops = BTreeMap::from([
            ("bare".to_owned(), of(&[1.0])),
            ("service".to_owned(), of(&[2.0])),
            ("crate".to_owned(), of(&[0.5])),
        ]);
        let verdicts = verdicts(&loops, "bare");
        assert_eq!(verdicts["service"].verdict, Conclusion::Faster);
        assert_eq!(verdicts["crate"].verdict, Conclusion::Slower);
        assert_eq!(verdicts.len(), 2);
        assert!(self::verdicts(&loops, "tuned").is_empty());
    }

    #[test]
    fn a_row_is_bound_from_half_the_time_on() {
        // 1,000 a second by one task: a millisecond each, two trips of 250 us in it.
        assert_eq!(round_trip_share(2.0, 250.0, 1_000.0, 1), 0.5);
        // Four tasks have four milliseconds each.
        assert_eq!(round_trip_share(2.0, 250.0, 1_000.0, 4), 0.125);
        assert_eq!(bound(Some(0.5), Bound::Database), Some(Bound::Database));
        assert_eq!(bound(Some(0.499), Bound::Broker), None);
        assert_eq!(bound(None, Bound::Broker), None);
    }
}
