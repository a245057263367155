//! The loops of a row: their order, their names, and how one compares with the one they are held against.

use ruststream_bench::results::{Bound, Conclusion, Loop, Scenario, Verdict};

use crate::number::number;

/// The order in which loops stand in charts and tables.
const ORDER: [&str; 8] = ["bare", "none", "empty", "hand", "deep", "crate", "service", "tuned"];

/// The loops of one row: the one that the others are held against, then the others in their order.
pub(crate) fn of_row(row: &Scenario) -> Vec<&str> {
    let mut keys = of(&[row]);
    keys.sort_by_key(|key| *key != row.baseline);
    keys
}

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
        "tuned" => "Tuned loop",
        "none" => "No outbox",
        "hand" => "Outbox by hand",
        "empty" => "An empty table",
        "deep" => "A full table",
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

/// How a loop compares, in half sentences: with the baseline of its row, then with the best loop written by hand.
pub(crate) fn comparisons(row: &Scenario, key: &str) -> Vec<String> {
    verdict(row, key)
        .into_iter()
        .chain(by_hand(row, key))
        .map(sentence)
        .collect()
}

/// How a loop compares with the best one written by hand, where that is not the baseline.
pub(crate) fn by_hand<'a>(row: &'a Scenario, key: &str) -> Option<&'a Verdict> {
    row.by_hand.get(key).filter(|_| key != "bare" && key != "none")
}

/// A comparison with its other loop: `2.1 % slower than the bare loop (the rounds spread by 1.2 %)`.
fn sentence(verdict: &Verdict) -> String {
    let spread = number(verdict.spread * 100.0);
    format!("{} (the rounds spread by {spread} %)", compared(verdict))
}

/// A comparison with its other loop: `20 times as fast as the bare loop`.
pub(crate) fn compared(verdict: &Verdict) -> String {
    let word = match verdict.verdict {
        Conclusion::Indistinguishable => "from",
        _ if verdict.ratio >= 1.5 => "as",
        _ => "than",
    };
    let other = match verdict.against.as_str() {
        "bare" => "the bare loop",
        "tuned" => "the tuned loop",
        "none" => "no outbox",
        "empty" => "the empty table",
        "hand" => "the outbox by hand",
        other => other,
    };
    format!("{} {word} {other}", comparison(verdict))
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

    #[test]
    fn a_comparison_names_what_it_is_with() {
        let said = |ratio, verdict, against: &str| {
            compared(&Verdict {
                against: against.to_owned(),
                ratio,
                spread: 0.01,
                verdict,
            })
        };
        let slower = said(0.5, Conclusion::Slower, "none");
        assert_eq!(slower, "50 % slower than no outbox");
        let faster = said(3.0, Conclusion::Faster, "bare");
        assert_eq!(faster, "3 times as fast as the bare loop");
        let neither = said(1.0, Conclusion::Indistinguishable, "tuned");
        assert_eq!(neither, "indistinguishable from the tuned loop");
    }
}
