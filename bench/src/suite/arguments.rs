//! What a bench binary is told. `xtask` compiles this file too, so that a mistake is found before the long build.

use std::path::PathBuf;
use std::time::Duration;

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Measures the scenarios of one transport. `cargo xtask bench` builds and runs the binaries of all.

Options:
  --list           name the scenarios, run none
  --only ID,..     these alone; the beginning of an id stands for all that begin so
  --rounds N       rounds of each loop (5 unless set)
  --seconds S      the length of a round (2 unless set)
  --smoke          a few messages through every loop, counted and checked, not timed
  --pin            on one processor, servers that are started here included
  --out FILE       where the results are written (docs/benchmarks/results.json unless set)
  --anew           drop the rows that are in the file instead of keeping those that are not measured now
";

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Measure,
    Smoke,
    List,
    Help,
}

/// What to do, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) task: Task,
    pub(crate) pin: bool,
    pub(crate) anew: bool,
    /// Empty where all are wanted.
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    pub(crate) out: Option<PathBuf>,
}

impl Arguments {
    /// Reads the words of a command line, without the program's name.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            task: Task::Measure,
            pin: false,
            anew: false,
            only: Vec::new(),
            rounds: 5,
            round: Duration::from_secs(2),
            out: None,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (option, joined) = match word.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let mut value = || {
                let value = joined.clone().or_else(|| words.next());
                value.ok_or_else(|| format!("{option} needs a value"))
            };
            match option.as_str() {
                "--list" => arguments.task = Task::List,
                "--smoke" => arguments.task = Task::Smoke,
                "--pin" => arguments.pin = true,
                "--anew" => arguments.anew = true,
                "--help" | "-h" => {
                    arguments.task = Task::Help;
                    break;
                }
                // Cargo says it to every bench binary.
                "--bench" => {}
                "--only" => {
                    let ids = value()?;
                    arguments
                        .only
                        .extend(ids.split(',').filter(|id| !id.is_empty()).map(str::to_owned));
                    if arguments.only.is_empty() {
                        return Err("--only needs the id of a scenario, or how ids begin; --list names them".to_owned());
                    }
                }
                "--rounds" => {
                    let text = value()?;
                    arguments.rounds = match text.parse() {
                        Ok(rounds @ 1..=1_000) => rounds,
                        _ => return Err(format!("--rounds takes a number from 1 to 1000, not `{text}`")),
                    };
                }
                "--seconds" => {
                    let text = value()?;
                    arguments.round = match text.parse::<f64>() {
                        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Duration::from_secs_f64(seconds),
                        _ => return Err(format!("--seconds takes a number from 0.1 to 600, not `{text}`")),
                    };
                }
                "--out" => arguments.out = Some(value()?.into()),
                _ => return Err(format!("not understood: {option}")),
            }
        }
        Ok(arguments)
    }

    /// Whether a scenario is asked for: `sqlite.lease` stands for itself and for `sqlite.lease.each.w1`, not for
    /// `sqlite.leases`.
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| is_part(wanted, id))
    }

    /// What was asked for and names none of these.
    pub(crate) fn unknown(&self, ids: &[&str]) -> Vec<&str> {
        let known = |wanted: &&String| ids.iter().any(|id| is_part(wanted, id));
        self.only
            .iter()
            .filter(|wanted| !known(wanted))
            .map(String::as_str)
            .collect()
    }
}

fn is_part(wanted: &str, id: &str) -> bool {
    let wanted = wanted.strip_suffix('.').unwrap_or(wanted);
    id.strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_stand_behind_a_space_or_an_equals_sign() {
        let spaced = parse("--bench --rounds 7 --seconds 0.5 --only a.b,c --out x.json --pin").unwrap();
        let joined = parse("--rounds=7 --seconds=0.5 --only=a.b --only=c --out=x.json --pin").unwrap();
        assert_eq!(spaced, joined);
        assert_eq!((spaced.rounds, spaced.round), (7, Duration::from_millis(500)));
        assert_eq!(spaced.only, ["a.b", "c"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (line, named) in [
            ("--rounds 0", "`0`"),
            ("--rounds many", "`many`"),
            ("--rounds", "--rounds"),
            ("--seconds 0", "`0`"),
            ("--seconds NaN", "`NaN`"),
            ("--only ,", "--only"),
            ("--speed", "--speed"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn the_beginning_of_an_id_stands_for_all_that_begin_so() {
        let arguments = parse("--only sqlite.lease,memory.,nothing").unwrap();
        assert!(arguments.wants("sqlite.lease.each.w1") && arguments.wants("memory.drain"));
        assert!(!arguments.wants("sqlite.leases") && !arguments.wants("sqlite.publish-1"));
        let ids = ["sqlite.lease.each.w1", "memory.drain"];
        assert_eq!(arguments.unknown(&ids), ["nothing"]);
        assert!(parse("").unwrap().wants("anything"));
    }
}
