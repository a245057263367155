//! What a message costs on the in-process broker, counted by gungraun: `cargo xtask bench --cost`.

#![allow(missing_docs, reason = "gungraun's macros make items without docs")]

use gungraun::{
    Bench, BenchmarkId, BinaryBenchmark, BinaryBenchmarkConfig, BinaryBenchmarkGroup, Callgrind, Command, Dhat,
    EntryPoint, binary_benchmark_group, main,
};
use ruststream_bench::costs::counted::{bench_name, function_name};
use ruststream_bench::costs::program::OPTIONS;
use ruststream_bench::costs::rows::MEMORY;

fn runs(group: &mut BinaryBenchmarkGroup) {
    let only = std::env::var("COSTS_ONLY").unwrap_or_default();
    let part = |one: &str, id: &str| {
        id.strip_prefix(one)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let wanted = |id: &str| only.is_empty() || only.split(',').any(|one| part(one, id));
    for row in MEMORY.iter().filter(|row| wanted(row.id)) {
        let mut counted = BinaryBenchmark::new(BenchmarkId::new(function_name(row.id)));
        for (of, run) in row.runs() {
            let mut command = Command::new(env!("CARGO_BIN_EXE_costs_memory"));
            command.args([row.id, of, &run.to_string()]);
            counted.bench(Bench::new(BenchmarkId::new(bench_name(of, run))).command(command));
        }
        group.binary_benchmark(counted);
    }
}

binary_benchmark_group!(
    name = memory,
    benchmarks = |group: &mut BinaryBenchmarkGroup| runs(group)
);

main!(
    config = BinaryBenchmarkConfig::default()
        // By the environment: gungraun puts `toggle-collect` last of its arguments, where it would switch the counting off at the start.
        .env("VALGRIND_OPTS", OPTIONS)
        .tool(Callgrind::with_args(["--cache-sim=no"]).entry_point(EntryPoint::None))
        .tool(Dhat::default().entry_point(EntryPoint::None)),
    binary_benchmark_groups = memory
);
