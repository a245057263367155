//! The wall-clock scenarios of the outbox as layers.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::outbox::OverRedis>()
}
