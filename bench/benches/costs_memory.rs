//! What a message costs on the in-process broker, counted by gungraun: `cargo xtask bench --cost`.

#![allow(missing_docs, reason = "gungraun's macros make items without docs")]

use gungraun::{binary_benchmark_group, main};
use ruststream_bench::costs::{group, rows::MEMORY};

binary_benchmark_group!(
    name = memory,
    benchmarks = |group| group::add(group, MEMORY, env!("CARGO_BIN_EXE_costs_memory"))
);

main!(config = group::config(), binary_benchmark_groups = memory);
