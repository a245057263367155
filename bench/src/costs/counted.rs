//! What gungraun counted, and the figures made of it.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::rows::{self, MESSAGES, Promise, Row, SERVICE};
use crate::results::{Cost, Counts};

/// How far a program goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Run {
    /// Everything is ready, and the app not yet built.
    Idle,
    /// The app is built and started, and the first message handled.
    First,
    /// So many messages are handled, and the app is shut down.
    Messages(u64),
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("idle"),
            Self::First => f.write_str("first"),
            Self::Messages(number) => write!(f, "{number}"),
        }
    }
}

impl FromStr for Run {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "idle" => Ok(Self::Idle),
            "first" => Ok(Self::First),
            number => number
                .parse()
                .map(Self::Messages)
                .map_err(|_| format!("{number:?} is neither `idle`, `first` nor a number of messages")),
        }
    }
}

/// The name under which gungraun runs a row: it takes letters, digits and `_`.
pub fn function_name(id: &str) -> String {
    id.replace(['.', '-'], "_")
}

/// The name under which gungraun runs one loop of a row.
pub fn bench_name(of: &str, run: Run) -> String {
    format!("{of}_{run}")
}

/// The counts of all runs.
#[derive(Debug, Default)]
pub struct Counted(HashMap<(String, String), Counts>);

impl Counted {
    /// Reads what gungraun prints with `--output-format=json`: one object a line for each run.
    ///
    /// # Errors
    ///
    /// Where a line is something else; the text says which and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut counted = HashMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let summary: Value =
                serde_json::from_str(line).map_err(|error| format!("gungraun printed no JSON: {error}: {line}"))?;
            let name = |key: &str| summary[key].as_str().unwrap_or_default().to_owned();
            let key = (name("function_name"), name("id"));
            let count = |tool, event| {
                total(&summary, tool, event)
                    .ok_or_else(|| format!("{} {}: gungraun counted no {event} by {tool}", key.0, key.1))
            };
            let counts = Counts {
                instructions: count("Callgrind", "Ir")?,
                allocations: count("DHAT", "TotalBlocks")?,
            };
            counted.insert(key, counts);
        }
        Ok(Self(counted))
    }

    /// Whether any run of a row was counted.
    pub fn has(&self, row: &Row) -> bool {
        let name = function_name(row.id);
        self.0.keys().any(|(function, _)| *function == name)
    }

    fn get(&self, row: &Row, of: &str, run: Run) -> Result<Counts, String> {
        let key = (function_name(row.id), bench_name(of, run));
        let found = self.0.get(&key);
        found
            .copied()
            .ok_or_else(|| format!("{}: no count of {of}, {run}", row.id))
    }

    /// The counts of a message in steady state.
    fn steady(&self, row: &Row, of: &str) -> Result<Counts, String> {
        let once = self.get(row, of, Run::Messages(MESSAGES))?;
        let twice = self.get(row, of, Run::Messages(2 * MESSAGES))?;
        let each = |once: f64, twice: f64| (twice - once) / MESSAGES as f64;
        Ok(Counts {
            instructions: each(once.instructions, twice.instructions).round(),
            allocations: rounded(each(once.allocations, twice.allocations)),
        })
    }

    /// The most that a message of a row is meant to cost; `None` where nothing is meant, or the row it is meant by was not counted.
    fn limit(&self, row: &Row) -> Result<Option<Counts>, String> {
        match row.promised {
            None => Ok(None),
            Some(Promise::AtMost(limit)) => Ok(Some(limit)),
            Some(Promise::Over(id, more)) => {
                let Some(base) = rows::find(id).filter(|base| self.has(base)) else {
                    return Ok(None);
                };
                let base = self.steady(base, SERVICE)?;
                Ok(Some(Counts {
                    instructions: base.instructions + more.instructions,
                    allocations: base.allocations + more.allocations,
                }))
            }
        }
    }

    /// The figures of one row.
    ///
    /// # Errors
    ///
    /// Where one of its runs was not counted.
    pub fn cost(&self, row: &Row) -> Result<Cost, String> {
        let service = self.steady(row, SERVICE)?;
        let idle = self.get(row, SERVICE, Run::Idle)?;
        let first = self.get(row, SERVICE, Run::First)?;
        let mut others = row
            .counterparts
            .iter()
            .map(|of| Ok(((*of).to_owned(), self.steady(row, of)?)))
            .collect::<Result<std::collections::BTreeMap<_, _>, String>>()?;
        Ok(Cost {
            id: row.id.to_owned(),
            transport: row.id.split('.').next().unwrap_or_default().to_owned(),
            title: row.title.to_owned(),
            instructions: service.instructions,
            allocations: service.allocations,
            limit: self.limit(row)?,
            cold: Some(Counts {
                instructions: first.instructions - idle.instructions,
                allocations: first.allocations - idle.allocations,
            }),
            bare: others.remove(rows::BARE),
            others,
        })
    }
}

/// Allocations are few; a thousandth of one is the finest that is told.
fn rounded(allocations: f64) -> f64 {
    let thousandths = (allocations * 1000.0).round() / 1000.0;
    // No figure is a negative zero.
    thousandths + 0.0
}

/// The sum of an event over all parts of a run by one tool.
fn total(summary: &Value, tool: &str, event: &str) -> Option<f64> {
    let of_tool = |profile: &&Value| {
        profile["tool"]
            .as_str()
            .is_some_and(|name| name.eq_ignore_ascii_case(tool))
    };
    let profile = summary["profiles"].as_array()?.iter().find(of_tool)?;
    let values = &profile["data"]["total"]["metrics"][event]["values"];
    values["new"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::rows::all;

    /// A line as gungraun 0.20 prints it, shortened to what is read and a little of the rest.
    fn line(row: &Row, of: &str, run: Run, instructions: u64, blocks: u64) -> String {
        let metric = |tool: &str, event: &str, value: u64| {
            format!(
                r#"{{"data":{{"parts":[],"total":{{"metrics":{{"{event}":{{"values":{{"new":{value},"old":1}}}}}},"regressions":[]}}}},"tool":"{tool}"}}"#
            )
        };
        format!(
            r#"{{"function_name":"{}","id":"{}","kind":"BinaryBenchmark","profiles":[{},{}],"version":"7"}}"#,
            function_name(row.id),
            bench_name(of, run),
            metric("Callgrind", "Ir", instructions),
            metric("DHAT", "TotalBlocks", blocks)
        )
    }

    fn counts(row: &Row) -> String {
        let lines = row.runs().into_iter().map(|(of, run)| match run {
            Run::Idle => line(row, of, run, 5_000, 7),
            Run::First => line(row, of, run, 9_000, 12),
            Run::Messages(number) => line(row, of, run, 100_000 + 300 * number, 50 + number / 2),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn start_up_cancels_out() {
        let row = all().next().unwrap();
        let cost = Counted::parse(&counts(row)).unwrap().cost(row).unwrap();
        let of = |instructions, allocations| Counts {
            instructions,
            allocations,
        };
        assert_eq!(of(cost.instructions, cost.allocations), of(300.0, 0.5));
        assert_eq!(cost.cold, Some(of(4_000.0, 5.0)));
        assert_eq!(cost.bare, Some(of(300.0, 0.5)));
    }

    #[test]
    fn a_limit_over_another_row_is_made_of_its_count() {
        let of = |id| rows::find(id).unwrap();
        let layer = counts(of("memory.layer4"));
        let both = format!("{layer}\n{}", counts(of("memory.json-small")));
        let limit = |text| Counted::parse(text).unwrap().cost(of("memory.layer4")).unwrap().limit;
        assert_eq!(limit(&both).map(|limit| limit.instructions), Some(300.0 + 4.0 * 25.0));
        assert_eq!(limit(&layer), None);
    }

    #[test]
    fn a_run_that_was_not_counted_is_named() {
        let row = all().next().unwrap();
        let text = counts(row);
        let (shorter, _) = text.rsplit_once('\n').unwrap();
        let error = Counted::parse(shorter).unwrap().cost(row).unwrap_err();
        assert!(error.contains(row.id) && error.contains("first"), "{error}");
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["warning: x", r#"{"function_name":"a","id":"b","profiles":[]}"#] {
            assert!(Counted::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_row_has_a_name_and_a_function_of_its_own() {
        let names: std::collections::BTreeSet<_> = all().map(|row| function_name(row.id)).collect();
        assert_eq!(names.len(), all().count());
    }
}
