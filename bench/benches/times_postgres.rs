//! The wall-clock scenarios over tables of `PostgreSQL`.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::postgres::Postgres>()
}
