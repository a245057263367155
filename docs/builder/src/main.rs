//! `cargo xtask docs`: builds the site and checks its links.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command of the project's own talks to the terminal"
)]

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(out), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: site WORKSPACE OUTPUT, as `cargo xtask docs` calls it");
        return ExitCode::from(2);
    };
    let results = root.join(ruststream_bench::results::PATH);
    match site::build(&root, &results, &out) {
        Ok(built) => {
            println!("{built}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
