//! The wall-clock scenarios over SQLite files.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::sqlite::Sqlite>()
}
