//! The wall-clock scenarios in process.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::memory::Memory>()
}
