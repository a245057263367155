//! `cargo xtask bench`: builds and runs the suite's binaries, one a transport.

// The suite's own, so that a mistake is told before a build of minutes. By its path, so that this crate needs no more to build.
#[allow(dead_code, reason = "the suite asks more of it")]
#[path = "../../../bench/src/suite/arguments.rs"]
mod arguments;
pub(crate) mod build;
pub(crate) mod cost;

use std::path::{Path, PathBuf};

use arguments::{Arguments, Task};

use crate::steps::{Cargo, Failed, Steps};

/// The text of `cargo xtask bench --help`.
pub(crate) const HELP: &str = "\
Measures the scenarios and writes docs/benchmarks/results.json, from which the pages are drawn.

Usage: cargo xtask bench [OPTIONS]

Options:
  --list           name the scenarios, run none
  --only ID,..     these alone, the other rows of the file stay; the beginning of an id stands for all that begin so:
                   sqlite, sqlite.lease, sqlite.lease.each.w1
  --rounds N       rounds of each loop, 1 to 1000 (5 unless set)
  --seconds S      the length that a round of each loop is calibrated to, 0.1 to 600 (2 unless set)
  --smoke          a few messages through every loop, counted and checked, nothing timed and nothing written; part of
                   `cargo xtask ci`
  --pin            loops, and servers that they start, on one processor: the cleanest ratios
  --out FILE       write there instead
  --cost           count what a message costs in instructions and allocations instead, under valgrind, which is installed where
                   it is missing; goes with --only and --out
  --gate           with --cost: write nothing, and fail where a cost is more than 2 % above its committed figure
  --build          build services of 1 and 100 handlers instead, and say what a handler adds; fails where that is too much
  -h, --help       this text

Without --only, all rows are measured anew. A figure is worth something on a machine that does nothing else.
Exit code: 0 if all is well, 1 if a loop failed or miscounted, 2 if the command is not understood.
";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Bench {
    arguments: Arguments,
}

/// Reads the words behind `bench`.
pub(crate) fn parse(words: &[&str]) -> Result<Bench, String> {
    let mut arguments = Arguments::parse(words.iter().map(|word| (*word).to_owned()))?;
    // The binaries run in another folder.
    if let Some(out) = &arguments.out {
        let out = std::path::absolute(out).map_err(|error| format!("--out {}: {error}", out.display()))?;
        arguments.out = Some(out);
    }
    Ok(Bench { arguments })
}

impl Bench {
    /// Whether only the help is wanted.
    pub(crate) fn is_help(&self) -> bool {
        self.arguments.task == Task::Help
    }

    /// Runs the binaries.
    pub(crate) fn run(&self, steps: &mut Steps) -> Result<(), Failed> {
        let transports = transports(steps.root());
        let wanted = self.wanted(&transports);
        let wanted = wanted.map_err(|error| Failed::new("bench", error, "cargo xtask bench --list"))?;
        let name = match self.arguments.task {
            Task::List => "bench list",
            Task::Smoke => "bench smoke",
            Task::Measure | Task::Help => "bench",
        };
        for cargo in self.calls(&wanted) {
            steps.cargo(name, &cargo)?;
        }
        Ok(())
    }

    /// The calls of cargo that do it.
    fn calls(&self, wanted: &[(&str, Vec<&str>)]) -> Vec<Cargo> {
        let mut arguments = self.arguments.clone();
        let mut calls = Vec::new();
        if arguments.task == Task::Measure {
            arguments.anew = arguments.only.is_empty();
            for (transport, only) in wanted {
                let cargo = Cargo::new("bench --package ruststream-bench --features").argument(transport);
                calls.push(with_binary(cargo, transport).pass_on(&words(&arguments, only)));
                // The first has dropped the old rows; the others add theirs.
                arguments.anew = false;
            }
            return calls;
        }
        // Not optimized, with the features of `cargo xtask test`, so that most is built already.
        let unoptimized = || Cargo::new("bench --profile dev --workspace --all-features");
        if arguments.only.is_empty() {
            let all = wanted
                .iter()
                .fold(unoptimized(), |cargo, (one, _)| with_binary(cargo, one));
            calls.push(all.pass_on(&words(&arguments, &[])));
        } else {
            // Each is told its own ids, and knows no others.
            let of = |(transport, only): &(&str, Vec<&str>)| {
                with_binary(unoptimized(), transport).pass_on(&words(&arguments, only))
            };
            calls.extend(wanted.iter().map(of));
        }
        calls
    }

    /// The transports asked for, and what of each; nothing of it is all.
    fn wanted<'a>(&'a self, transports: &'a [String]) -> Result<Vec<(&'a str, Vec<&'a str>)>, String> {
        let only = &self.arguments.only;
        let transport_of = |id: &'a str| id.split('.').next().unwrap_or(id);
        if let Some(id) = only
            .iter()
            .find(|id| transports.iter().all(|known| known != transport_of(id)))
        {
            return Err(format!(
                "no scenario is named `{id}`: ids begin with one of {}",
                transports.join(", ")
            ));
        }
        let of = |transport: &'a String| {
            let own: Vec<&str> = only
                .iter()
                .map(String::as_str)
                .filter(|id| transport_of(id) == transport)
                .collect();
            (only.is_empty() || !own.is_empty()).then_some((transport.as_str(), own))
        };
        Ok(transports.iter().filter_map(of).collect())
    }
}

/// Runs a few messages through every loop, without a word of the command line.
pub(crate) fn smoke(steps: &mut Steps) -> Result<(), Failed> {
    match parse(&["--smoke"]) {
        Ok(bench) => bench.run(steps),
        Err(error) => unreachable!("`--smoke` is understood: {error}"),
    }
}

/// The words that say the same, for these scenarios alone.
fn words(arguments: &Arguments, only: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    match arguments.task {
        Task::Measure => {
            words.extend(["--rounds".to_owned(), arguments.rounds.to_string()]);
            words.extend(["--seconds".to_owned(), arguments.round.as_secs_f64().to_string()]);
        }
        Task::Smoke => words.push("--smoke".to_owned()),
        Task::List => words.push("--list".to_owned()),
        Task::Help => words.push("--help".to_owned()),
    }
    if !only.is_empty() {
        words.extend(["--only".to_owned(), only.join(",")]);
    }
    for (given, word) in [(arguments.pin, "--pin"), (arguments.anew, "--anew")] {
        words.extend(given.then(|| word.to_owned()));
    }
    if let Some(out) = &arguments.out {
        words.extend(["--out".to_owned(), out.to_string_lossy().into_owned()]);
    }
    words
}

/// Adds the binary of a transport to those that are run.
fn with_binary(cargo: Cargo, transport: &str) -> Cargo {
    cargo.argument("--bench").argument(&format!("times_{transport}"))
}

/// The transports that have a bench binary, in the order of the suite's manifest.
fn transports(root: &Path) -> Vec<String> {
    let manifest = std::fs::read_to_string(root.join(PathBuf::from("bench/Cargo.toml"))).unwrap_or_default();
    named(&manifest, "times_")
}

/// The transports whose bench binaries' names begin with `kind`.
fn named(manifest: &str, kind: &str) -> Vec<String> {
    let benches = manifest.split("[[bench]]").skip(1);
    let names = benches.filter_map(|table| table.lines().find_map(|line| line.trim().strip_prefix("name = \"")));
    names
        .filter_map(|name| Some(name.strip_prefix(kind)?.strip_suffix('"')?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transports() -> Vec<String> {
        named(
            "[[bench]]\nname = \"times_memory\"\n[[bench]]\nname = \"costs_memory\"\n[[bench]]\nname = \"times_sqlite\"",
            "times_",
        )
    }

    #[test]
    fn each_transport_is_told_its_own_ids() {
        let transports = transports();
        assert_eq!(transports, ["memory", "sqlite"]);
        let all = parse(&[]).unwrap();
        assert_eq!(all.wanted(&transports).unwrap().len(), 2);
        let some = parse(&["--only", "sqlite.lease,sqlite.reply"]).unwrap();
        assert_eq!(
            some.wanted(&transports).unwrap(),
            [("sqlite", vec!["sqlite.lease", "sqlite.reply"])]
        );
    }

    #[test]
    fn each_binary_is_told_the_ids_that_it_knows() {
        let calls = |line: &[&str]| -> Vec<String> {
            let (bench, transports) = (parse(line).unwrap(), transports());
            let calls = bench.calls(&bench.wanted(&transports).unwrap());
            calls.iter().map(Cargo::to_string).collect()
        };
        let unoptimized = "cargo bench --profile dev --workspace --all-features";
        assert_eq!(
            calls(&["--smoke"]),
            [format!(
                "{unoptimized} --bench times_memory --bench times_sqlite -- --smoke"
            )]
        );
        assert_eq!(
            calls(&["--list", "--only", "sqlite.reply,memory.flow,sqlite.lease"]),
            [
                format!("{unoptimized} --bench times_memory -- --list --only memory.flow"),
                format!("{unoptimized} --bench times_sqlite -- --list --only sqlite.reply,sqlite.lease"),
            ]
        );
    }

    #[test]
    fn a_full_run_drops_the_old_rows_once_and_a_partial_one_keeps_them() {
        let anew = |line: &[&str]| -> Vec<bool> {
            let (bench, transports) = (parse(line).unwrap(), transports());
            let calls = bench.calls(&bench.wanted(&transports).unwrap());
            calls.iter().map(|call| call.to_string().contains("--anew")).collect()
        };
        assert_eq!(anew(&[]), [true, false]);
        assert_eq!(anew(&["--only", "memory,sqlite"]), [false, false]);
    }

    #[test]
    fn an_id_of_no_transport_is_refused_with_those_that_are_there() {
        let bench = parse(&["--only", "kafka.topic"]).unwrap();
        let error = bench.wanted(&transports()).unwrap_err();
        assert!(
            error.contains("kafka.topic") && error.contains("memory, sqlite"),
            "{error}"
        );
    }

    #[test]
    fn what_is_passed_on_says_the_same() {
        for line in [
            "--smoke --only a,b",
            "--rounds 7 --seconds 0.25 --pin --out /x.json --anew",
            "--list",
            "",
        ] {
            let given: Vec<&str> = line.split_whitespace().collect();
            let arguments = parse(&given).unwrap().arguments;
            let only: Vec<&str> = arguments.only.iter().map(String::as_str).collect();
            assert_eq!(Arguments::parse(words(&arguments, &only)).unwrap(), arguments, "{line}");
        }
    }

    #[test]
    fn the_file_is_meant_from_where_the_command_was_given() {
        let bench = parse(&["--out", "x.json"]).unwrap();
        assert!(bench.arguments.out.unwrap().is_absolute());
    }

    #[test]
    fn every_option_of_the_suite_is_in_the_help() {
        for line in arguments::HELP.lines().filter_map(|line| line.trim().split(' ').next()) {
            let hidden = line == "--anew";
            assert!(hidden || !line.starts_with("--") || HELP.contains(line), "{line}");
        }
    }
}
