//! The program that is counted for Redis: `costs_redis ROW LOOP idle|first|MESSAGES`.

#![allow(clippy::print_stderr, reason = "a program run by hand says what it wants")]

use std::process::ExitCode;

use ruststream_bench::costs::{program, redis};

fn main() -> ExitCode {
    match program::arguments().and_then(|(row, of, run)| redis::run(&row, &of, run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
