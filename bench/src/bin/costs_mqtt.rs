//! The program that is counted for MQTT: `costs_mqtt ROW LOOP idle|first|MESSAGES`.

#![allow(clippy::print_stderr, reason = "a program run by hand says what it wants")]

use std::process::ExitCode;

use ruststream_bench::costs::{mqtt, program};

fn main() -> ExitCode {
    match program::arguments().and_then(|(row, of, run)| mqtt::run(&row, &of, run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
