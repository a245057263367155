//! The rows of a transport as gungraun runs them.

use gungraun::{
    Bench, BenchmarkId, BinaryBenchmark, BinaryBenchmarkConfig, BinaryBenchmarkGroup, Callgrind, Command, Dhat,
    EntryPoint,
};

use super::counted::{bench_name, function_name};
use super::program::OPTIONS;
use super::rows::Row;

/// Adds the runs of these rows, all or those that `COSTS_ONLY` names, by this program.
pub fn add(group: &mut BinaryBenchmarkGroup, rows: &[Row], program: &str) {
    let only = std::env::var("COSTS_ONLY").unwrap_or_default();
    let part = |one: &str, id: &str| {
        id.strip_prefix(one)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let wanted = |id: &str| only.is_empty() || only.split(',').any(|one| part(one, id));
    for row in rows.iter().filter(|row| wanted(row.id)) {
        let mut counted = BinaryBenchmark::new(BenchmarkId::new(function_name(row.id)));
        for (of, run) in row.runs() {
            let mut command = Command::new(program);
            command.args([row.id, of, &run.to_string()]);
            counted.bench(Bench::new(BenchmarkId::new(bench_name(of, run))).command(command));
        }
        group.binary_benchmark(counted);
    }
}

/// What is counted, and how.
pub fn config() -> BinaryBenchmarkConfig {
    let mut config = BinaryBenchmarkConfig::default();
    config
        // By the environment: gungraun puts `toggle-collect` last of its arguments, where it would switch the counting off at the start.
        .env("VALGRIND_OPTS", OPTIONS)
        .tool(Callgrind::with_args(["--cache-sim=no"]).entry_point(EntryPoint::None))
        .tool(Dhat::default().entry_point(EntryPoint::None));
    config
}
