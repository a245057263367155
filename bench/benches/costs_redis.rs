//! What a message costs on Redis, counted by gungraun: `cargo xtask bench --cost --only redis`.

#![allow(missing_docs, reason = "gungraun's macros make items without docs")]

use gungraun::{binary_benchmark_group, main};
use ruststream_bench::costs::{group, rows::REDIS};

binary_benchmark_group!(
    name = redis,
    benchmarks = |group| group::add(group, REDIS, env!("CARGO_BIN_EXE_costs_redis"))
);

main!(config = group::config(), binary_benchmark_groups = redis);
