//! The wall-clock scenarios over RabbitMQ.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::rabbitmq::Rabbit>()
}
