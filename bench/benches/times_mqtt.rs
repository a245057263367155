//! The wall-clock scenarios over MQTT.

fn main() -> std::process::ExitCode {
    ruststream_bench::suite::main::<ruststream_bench::scenarios::mqtt::Mqtt>()
}
