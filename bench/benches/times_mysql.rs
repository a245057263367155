//! The wall-clock scenarios over tables of MariaDB.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::mysql::MySql>()
}
