//! Where on an axis a value stands.

/// An axis of rates held against a baseline. Equal factors are equally far apart, to both sides of zero, so that twice as fast and twice
/// as slow look like it; the faster is to the left.
pub(crate) struct Ratios {
    /// The logarithm of the slowness (baseline over rate) at the left and at the right end.
    left: f64,
    right: f64,
}

/// The distances from zero that can be marked, the finest first: in percent, then as factors.
const STEPS: [(&[f64], &[f64]); 6] = [
    (&[1.0, 2.0, 3.0, 4.0], &[]),
    (&[2.0, 4.0, 6.0], &[]),
    (&[5.0, 10.0, 15.0], &[]),
    (&[10.0, 20.0, 30.0, 40.0], &[]),
    (&[20.0, 50.0], &[2.0, 3.0, 5.0]),
    (&[], &[2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]),
];

/// A mark of an axis.
#[derive(Debug, PartialEq)]
pub(crate) struct Mark {
    /// What stands there: a rate over the baseline's, or a rate.
    pub(crate) value: f64,
    /// Its place in percent of the axis.
    pub(crate) at: f64,
    /// What is written there.
    pub(crate) label: String,
}

impl Ratios {
    /// The axis that shows all `ratios` (rate over baseline) and 1.
    pub(crate) fn of(ratios: impl Iterator<Item = f64>) -> Self {
        let slowness = ratios.map(|ratio| -ratio.ln());
        let (left, right) = slowness.fold((-0.01_f64, 0.01_f64), |(left, right), at| (left.min(at), right.max(at)));
        let margin = (right - left) * 0.05;
        Self {
            left: left - margin,
            right: right + margin,
        }
    }

    /// The place of a rate over the baseline's, in percent from the left.
    pub(crate) fn at(&self, ratio: f64) -> f64 {
        (-ratio.ln() - self.left) / (self.right - self.left) * 100.0
    }

    /// Zero, and as many marks as are well apart.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let inside = |(percents, factors): (&[f64], &[f64])| -> Vec<Mark> {
            let faster = percents
                .iter()
                .map(|percent| (1.0 + percent / 100.0, format!("{percent} %")));
            // Half the rate is said once: as twice as slow.
            let below = percents.iter().filter(|percent| factors.is_empty() || **percent < 50.0);
            let slower = below.map(|percent| (1.0 - percent / 100.0, format!("{percent} %")));
            let multiples = factors
                .iter()
                .flat_map(|factor| [*factor, 1.0 / factor].map(|value| (value, format!("{factor}×"))));
            let all = faster.chain(slower).chain(multiples).chain([(1.0, "0".to_owned())]);
            let placed = all.map(|(value, label)| Mark {
                value,
                at: self.at(value),
                label,
            });
            let mut marks: Vec<_> = placed.filter(|mark| (0.0..=100.0).contains(&mark.at)).collect();
            marks.sort_by(|a, b| a.at.total_cmp(&b.at));
            marks
        };
        let apart = |marks: &Vec<Mark>| marks.windows(2).all(|pair| pair[1].at - pair[0].at >= 9.0);
        let covers = |marks: &Vec<Mark>| marks.len() >= 2;
        let fine = STEPS
            .into_iter()
            .map(inside)
            .find(|marks| covers(marks) && apart(marks));
        // Where one side is much longer than the other, what is too near to its neighbour is left out, zero never.
        fine.unwrap_or_else(|| {
            let mut kept: Vec<Mark> = Vec::new();
            let mut marks = inside(STEPS[STEPS.len() - 1]);
            marks.sort_by(|a, b| (a.at - self.at(1.0)).abs().total_cmp(&(b.at - self.at(1.0)).abs()));
            for mark in marks {
                if kept.iter().all(|other| (other.at - mark.at).abs() >= 9.0) {
                    kept.push(mark);
                }
            }
            kept.sort_by(|a, b| a.at.total_cmp(&b.at));
            kept
        })
    }
}

/// An axis from zero.
pub(crate) struct FromZero {
    end: f64,
    step: f64,
}

impl FromZero {
    /// The axis that shows all `values`, and ends at a round number.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let largest = values.fold(0.0, f64::max);
        if largest <= 0.0 {
            return Self { end: 1.0, step: 1.0 };
        }
        let rough = largest / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
        let step = round.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let end = step * (largest / step - 1e-9).ceil();
        Self { end, step }
    }

    /// The place of a value, in percent from zero.
    pub(crate) fn at(&self, value: f64) -> f64 {
        value / self.end * 100.0
    }

    /// The marks from zero to the end.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let count = (self.end / self.step).round() as usize;
        (0..=count)
            .map(|n| n as f64 * self.step)
            .map(|value| Mark {
                value,
                at: self.at(value),
                label: crate::number::short(value),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_is_to_the_right_and_equal_factors_are_equally_far() {
        let scale = Ratios::of([2.0, 0.5].into_iter());
        let (fast, zero, slow) = (scale.at(2.0), scale.at(1.0), scale.at(0.5));
        assert!(0.0 < fast && fast < zero && zero < slow && slow < 100.0);
        assert!(((zero - fast) - (slow - zero)).abs() < 1e-9);
    }

    #[test]
    fn zero_and_one_more_are_marked_on_narrow_wide_and_lopsided_axes() {
        for ratios in [
            [1.0, 0.999],
            [1.02, 0.98],
            [1.3, 0.8],
            [25.0, 0.97],
            [0.03, 1.0],
            [1.0, 0.92],
            [900.0, 0.5],
        ] {
            let marks = Ratios::of(ratios.into_iter()).marks();
            assert!((2..=12).contains(&marks.len()), "{ratios:?}: {marks:?}");
            assert!(marks.iter().any(|mark| mark.label == "0"), "{ratios:?}: {marks:?}");
            let apart = marks.windows(2).all(|pair| pair[1].at - pair[0].at >= 9.0);
            assert!(apart, "{ratios:?}: {marks:?}");
        }
    }

    #[test]
    fn an_axis_from_zero_ends_at_a_round_number_beyond_the_largest() {
        for (largest, end) in [
            (97.0, 100.0),
            (18_300.0, 20_000.0),
            (0.016, 0.02),
            (100.0, 100.0),
            (6.0, 6.0),
        ] {
            let scale = FromZero::of([largest, largest / 3.0].into_iter());
            assert!(
                scale.at(largest) <= 100.0 + 1e-6 && (scale.end - end).abs() < 1e-9,
                "{largest}: {}",
                scale.end
            );
            assert!((4..=6).contains(&scale.marks().len()), "{largest}: {:?}", scale.marks());
        }
        assert!(FromZero::of([0.0].into_iter()).at(0.0).abs() < f64::EPSILON);
    }
}
