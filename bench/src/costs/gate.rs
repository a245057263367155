//! Whether costs have risen: each figure is held to the committed one.

use crate::results::{Cost, Counts};

/// What a figure may rise by before it counts as risen, as a part of the committed figure.
const RISE: f64 = 0.02;
/// What may come on top: counts differ by a few instructions from build to build, and by an allocation in a thousand messages.
const SLACK: Counts = Counts {
    instructions: 10.0,
    allocations: 0.005,
};
/// The same for a cold start, which is one message and no mean of thousands.
const COLD_SLACK: Counts = Counts {
    instructions: 200.0,
    allocations: 1.0,
};

/// What has risen over the committed figures; empty if all is well.
pub fn risen(committed: &[Cost], counted: &[Cost]) -> Vec<String> {
    counted
        .iter()
        .flat_map(|cost| match committed.iter().find(|known| known.id == cost.id) {
            Some(known) => risen_row(known, cost),
            None => vec![format!("{}: no figure is committed", cost.id)],
        })
        .collect()
}

fn risen_row(known: &Cost, cost: &Cost) -> Vec<String> {
    let message = |cost: &Cost| Counts {
        instructions: cost.instructions,
        allocations: cost.allocations,
    };
    let mut found = risen_counts(&cost.id, "a message", message(known), message(cost), SLACK);
    if let (Some(known), Some(cold)) = (known.cold, cost.cold) {
        found.extend(risen_counts(&cost.id, "its cold start", known, cold, COLD_SLACK));
    }
    found
}

fn risen_counts(id: &str, of: &str, known: Counts, now: Counts, slack: Counts) -> Vec<String> {
    let each = [
        ("instructions", known.instructions, now.instructions, slack.instructions),
        ("allocations", known.allocations, now.allocations, slack.allocations),
    ];
    each.into_iter()
        .filter(|(_, known, now, slack)| *now > known * (1.0 + RISE) + slack)
        .map(|(what, known, now, _)| format!("{id}: {of} costs {now} {what}, and {known} are committed"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(instructions: f64, allocations: f64) -> Cost {
        Cost {
            id: "memory.bytes".to_owned(),
            transport: "memory".to_owned(),
            title: "bytes".to_owned(),
            instructions,
            allocations,
            limit: None,
            cold: Some(Counts {
                instructions: 10_000.0,
                allocations: 30.0,
            }),
            bare: None,
            others: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn a_cost_may_fall_and_wobble_but_not_rise() {
        let committed = [cost(1000.0, 0.0)];
        for (counted, risen_rows) in [
            (cost(900.0, 0.0), 0),
            (cost(1030.0, 0.004), 0),
            (cost(1031.0, 0.0), 1),
            (cost(1000.0, 0.01), 1),
            (cost(1200.0, 1.0), 2),
        ] {
            assert_eq!(
                risen(&committed, std::slice::from_ref(&counted)).len(),
                risen_rows,
                "{counted:?}"
            );
        }
    }

    #[test]
    fn a_cold_start_is_held_to_its_own_figure() {
        let mut slower = cost(1000.0, 0.0);
        slower.cold = Some(Counts {
            instructions: 10_500.0,
            allocations: 30.0,
        });
        let found = risen(&[cost(1000.0, 0.0)], &[slower]);
        assert!(found.len() == 1 && found[0].contains("cold start"), "{found:?}");
    }

    #[test]
    fn a_row_without_a_committed_figure_does_not_pass() {
        assert_eq!(risen(&[], &[cost(1.0, 0.0)]).len(), 1);
    }
}
