//! The program that is counted for the in-process broker: `costs_memory ROW LOOP idle|first|MESSAGES`.

#![allow(clippy::print_stderr, reason = "a program run by hand says what it wants")]

use std::process::ExitCode;

use ruststream_bench::costs::{memory, program};

fn main() -> ExitCode {
    match program::arguments().and_then(|(row, of, run)| memory::run(&row, &of, run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
