//! The loops of a row: their order, their names, and how one compares with the one they are held against.

use ruststream_bench::results::{Bound, Conclusion, Loop, Scenario, Verdict};

use crate::number::number;

/// The order in which loops stand in charts and tables.
const ORDER: [&str; 6] = ["bare", "none", "hand", "crate", "service", "tuned"];

/// The loops of some rows, in their order: each name once.
pub(crate) fn of<'a>(rows: &[&'a Scenario]) -> Vec<&'a str> {
    let mut keys: Vec<&str> = rows
        .iter()
        .flat_map(|row| row.loops.keys().map(String::as_str))
        .collect();
    keys.sort_by_key(|key| (ORDER.iter().position(|known| known == key).unwrap_or(ORDER.len()), *key));
    keys.dedup();
    keys
}

/// A loop's name for people. The crate's loop of an outbox is another thing than that of a transport.
pub(crate) fn name<'a>(key: &'a str, baseline: &str) -> &'a str {
    match key {
        "bare" => "Bare loop",
        "crate" if baseline == "none" => "The crate's outbox",
        "crate" => "Transport by hand",
        "service" => "RustStream service",
        "tuned" => "Tuned by hand",
        "none" => "No outbox",
        "hand" => "Outbox by hand",
        other => other,
    }
}

/// How a loop compares with the baseline of its row; none for the baseline itself.
pub(crate) fn verdict<'a>(row: &'a Scenario, key: &str) -> Option<&'a Verdict> {
    row.verdicts.get(key).filter(|verdict| verdict.against == row.baseline)
}

/// True where nothing can be concluded from the difference.
pub(crate) fn is_indistinguishable(row: &Scenario, key: &str) -> bool {
    verdict(row, key).is_some_and(|verdict| verdict.verdict == Conclusion::Indistinguishable)
}

/// A comparison in few words: `2.1 % slower`, `20.1 times as fast`, `indistinguishable`.
pub(crate) fn comparison(verdict: &Verdict) -> String {
    let ratio = verdict.ratio;
    match verdict.verdict {
        Conclusion::Indistinguishable => "indistinguishable".to_owned(),
        _ if ratio >= 1.5 => format!("{} times as fast", number((ratio * 10.0).round() / 10.0)),
        _ if ratio >= 1.0 => format!("{} % faster", number((ratio - 1.0) * 100.0)),
        _ => format!("{} % slower", number((1.0 - ratio) * 100.0)),
    }
}

/// What the baseline of a row waits for, in words.
pub(crate) fn bound(row: &Scenario) -> Option<&'static str> {
    row.bound.map(|bound| match bound {
        Bound::Database => "bound by the database",
        Bound::Broker => "bound by the broker",
    })
}

/// The figures of a loop in a sentence.
pub(crate) fn figures(figures: &Loop) -> String {
    format!(
        "best round {} messages a second, median {}, slowest {}",
        number(figures.best),
        number(figures.median),
        number(figures.worst)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_reads_as_a_person_would_say_it() {
        let said = |ratio, verdict| {
            comparison(&Verdict {
                against: "bare".to_owned(),
                ratio,
                spread: 0.01,
                verdict,
            })
        };
        assert_eq!(said(0.979, Conclusion::Slower), "2.1 % slower");
        assert_eq!(said(1.025, Conclusion::Faster), "2.5 % faster");
        assert_eq!(said(20.06, Conclusion::Faster), "20.1 times as fast");
        assert_eq!(said(1.2, Conclusion::Indistinguishable), "indistinguishable");
    }
}
