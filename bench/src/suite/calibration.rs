//! How many messages a round takes.

use std::time::Duration;

/// The number of messages of every call of a loop is a multiple of this: eight tasks of 64.
pub const STEP: u64 = 512;

/// What a round of a loop is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Messages of one call.
    pub(super) messages: u64,
    /// Calls of one round.
    pub(super) passes: u64,
}

impl Plan {
    /// A few messages, once.
    pub(super) const SMOKE: Self = Self {
        messages: STEP,
        passes: 1,
    };

    pub(super) fn total(self) -> u64 {
        self.messages * self.passes
    }
}

/// What to do after a call with so many messages took so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Too short to tell: another call, with more.
    Call(u64),
    /// The rate is known.
    Ready(Plan),
}

/// Calls are tried with more and more messages until one lasts an eighth of the round, or the most that a call may have.
pub(super) fn next(messages: u64, took: Duration, round: Duration, at_most: u64) -> Next {
    let at_most = (at_most / STEP * STEP).max(STEP);
    let took = took.as_secs_f64().max(1e-9);
    let round = round.as_secs_f64();
    if took < round / 8.0 && messages < at_most {
        // A first call is dominated by what happens once, so no leap is larger than sixteenfold.
        let leap = (round / 4.0 / took).clamp(2.0, 16.0);
        return Next::Call(stepped(messages as f64 * leap).min(at_most));
    }
    let wanted = messages as f64 / took * round;
    let passes = (wanted / at_most as f64).ceil().max(1.0);
    Next::Ready(Plan {
        messages: stepped(wanted / passes).min(at_most),
        passes: passes as u64,
    })
}

/// The next multiple of [`STEP`].
fn stepped(messages: f64) -> u64 {
    ((messages / STEP as f64).ceil() as u64).max(1) * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_secs(2);

    /// Calibrates a loop that takes `once` and then handles `rate` messages a second.
    fn calibrated(rate: f64, once: f64, at_most: u64) -> Plan {
        let mut messages = STEP;
        for _ in 0..20 {
            let took = Duration::from_secs_f64(once + messages as f64 / rate);
            match next(messages, took, ROUND, at_most) {
                Next::Call(more) => {
                    assert!(more > messages, "calls grow");
                    messages = more;
                }
                Next::Ready(plan) => return plan,
            }
        }
        panic!("{rate}: not calibrated after 20 calls");
    }

    #[test]
    fn a_round_lasts_what_was_asked_whatever_the_rate() {
        for rate in [500.0, 3_000.0, 50_000.0, 5e6] {
            let plan = calibrated(rate, 0.0, u64::MAX);
            let lasts = plan.total() as f64 / rate;
            assert!((2.0..3.1).contains(&lasts), "{rate} a second: {lasts} s");
            assert_eq!((plan.messages % STEP, plan.passes), (0, 1));
        }
    }

    #[test]
    fn what_happens_once_does_not_shorten_a_round_much() {
        let plan = calibrated(100_000.0, 0.02, u64::MAX);
        assert!(plan.total() as f64 / 100_000.0 > 1.6, "{plan:?}");
    }

    #[test]
    fn a_bounded_call_is_made_several_times() {
        let plan = calibrated(1e6, 0.0, 100_000);
        assert!(
            plan.messages <= 100_000 && plan.messages.is_multiple_of(STEP),
            "{plan:?}"
        );
        assert!((2.0..2.2).contains(&(plan.total() as f64 / 1e6)), "{plan:?}");
    }

    #[test]
    fn a_bound_below_the_step_is_the_step() {
        assert_eq!(
            next(STEP, Duration::from_millis(1), Duration::from_millis(1), 1),
            Next::Ready(Plan::SMOKE)
        );
    }
}
