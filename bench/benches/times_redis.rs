//! The wall-clock scenarios over Redis.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::redis::Redis>()
}
