//! The project's chores: `cargo xtask test`, `cargo xtask ci` and their parts.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore runner talks to the terminal"
)]

mod bench;
mod code;
mod docs;
mod imports;
mod lint;
mod services;
mod steps;
mod test;
mod tree;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use steps::{Failed, Steps};

const HELP: &str = "\
The chores of the RustStream workspace.

Usage: cargo xtask <COMMAND>

Commands:
  test [FILTER]  all tests and doc tests, with whatever set-up they need; with FILTER, the tests whose name contains it
  lint           everything that is checked besides tests: format, clippy, docs, tree, imports
  ci             test, a smoke run of bench, its gate of costs, lint: what has to pass before a change is merged
  bench          measure the scenarios of the benchmark pages; `bench --help` says how
  services start|stop|status [NAME..]  the servers that tests and benchmarks talk to
  docs           build the site into target/site and check its links
  tree           check that the default dependency tree stays small
  imports        check that the rooms of the crates import in one direction
  help           this text

Each command stops at the first step that fails, names it, and says how to run it again alone.
Exit code: 0 if all is well, 1 if a step failed, 2 if the command is not understood.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut steps = Steps::new(workspace_root());
    let result = match arguments.as_slice() {
        ["bench", "--build"] => bench::build::run(&mut steps),
        ["bench", words @ ..] if words.contains(&"--cost") => match bench::cost::parse(words) {
            Ok(cost) => cost.run(&mut steps),
            Err(error) => {
                eprint!("error: {error}\n\n{}", bench::HELP);
                return ExitCode::from(2);
            }
        },
        ["bench", words @ ..] => match bench::parse(words) {
            Ok(bench) if bench.is_help() => {
                print!("{}", bench::HELP);
                return ExitCode::SUCCESS;
            }
            Ok(bench) => bench.run(&mut steps),
            Err(error) => {
                eprint!("error: {error}\n\n{}", bench::HELP);
                return ExitCode::from(2);
            }
        },
        ["help" | "-h" | "--help"] | [_, "-h" | "--help"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        ["test"] => test::all(&mut steps),
        ["test", filter] => test::some(&mut steps, filter),
        ["lint"] => lint::all(&mut steps),
        ["ci"] => test::all(&mut steps)
            .and_then(|()| bench::smoke(&mut steps))
            .and_then(|()| bench::cost::gate(&mut steps))
            .and_then(|()| lint::all(&mut steps)),
        ["services", "start", names @ ..] => services::start(&mut steps, names),
        ["services", "stop", names @ ..] => services::stop(&mut steps, names),
        ["services", "status"] => services::status(&mut steps),
        ["docs"] => docs::site(&mut steps),
        ["tree"] => lint::tree(&mut steps),
        ["imports"] => lint::imports(&mut steps),
        [] => return misused("no command given"),
        unknown => return misused(&format!("not understood: {}", unknown.join(" "))),
    };
    finish(&steps, result)
}

fn misused(what: &str) -> ExitCode {
    eprint!("error: {what}\n\n{HELP}");
    ExitCode::from(2)
}

fn finish(steps: &Steps, result: Result<(), Failed>) -> ExitCode {
    match result {
        Ok(()) => {
            eprintln!("{}", steps.summary());
            ExitCode::SUCCESS
        }
        Err(failed) => {
            eprintln!("{failed}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above this crate. Asked of cargo at run time, so that a moved checkout needs no rebuild.
fn workspace_root() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), |xtask| PathBuf::from(xtask).join(".."))
}
