//! What a message costs on MQTT, counted by gungraun: `cargo xtask bench --cost --only mqtt`.

#![allow(missing_docs, reason = "gungraun's macros make items without docs")]

use gungraun::{binary_benchmark_group, main};
use ruststream_bench::costs::{group, rows::MQTT};

binary_benchmark_group!(
    name = mqtt,
    benchmarks = |group| group::add(group, MQTT, env!("CARGO_BIN_EXE_costs_mqtt"))
);

main!(config = group::config(), binary_benchmark_groups = mqtt);
