//! The benchmark suite of RustStream.
//!
//! `cargo xtask bench` runs it and writes `docs/benchmarks/results.json`, from which the pages are drawn; [`results`] is the
//! schema of that file.

pub mod results;
