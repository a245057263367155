//! A house on MQTT: the sensors of all rooms are read by one filter, what is too hot becomes an alarm, and who looks for the state of
//! a room finds it retained.
//!
//! `MQTT_URL=mqtt://localhost cargo run -p mqtt-alarms` runs it. From another terminal:
//!
//! ```sh
//! mosquitto_pub -q 1 -t house/kitchen/heat -m 71.5
//! mosquitto_sub -t 'alarms/#' -v
//! ```

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use ruststream::app::AppBuilder;
use ruststream::prelude::*;
use ruststream_rumqttc::{Levels, MqttBroker, MqttOptions, TopicFilter};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Alarm {
    room: String,
    degrees: f64,
}

/// What is too hot, in degrees.
const HOT: f64 = 60.0;

/// Looks at what a sensor of heat says. The room stands in the topic.
#[subscriber("house/+/heat")]
async fn watch(degrees: f64, Levels((room,)): Levels<(String,)>, alarms: Out<Alarm>) -> Result<(), PublishError> {
    if degrees > HOT {
        let topic = format!("alarms/{room}");
        // Who asks later finds the last alarm of each room.
        let last = MqttOptions::new().retain();
        alarms.publish(topic, &Alarm { room, degrees }).options(last).await?;
    }
    Ok(())
}

/// Rings for an alarm. Any number of processes share them.
#[subscriber("alarms/+")]
async fn ring(alarm: Alarm) {
    println!("{} has {} degrees", alarm.room, alarm.degrees);
}

fn house(mqtt: MqttBroker) -> AppBuilder<()> {
    RustStream::new(AppInfo::new("house", env!("CARGO_PKG_VERSION"))).with_broker(mqtt, |broker| {
        broker.include(watch).workers(4);
        broker.include(ring).source(TopicFilter::new("alarms/+").group("bells"));
    })
}

#[ruststream::app]
fn app() -> RustStream {
    let url = std::env::var("MQTT_URL").unwrap_or_else(|_| "mqtt://localhost".to_owned());
    // A name of its own keeps the session, and with it what is said while the service restarts.
    house(MqttBroker::new(url).client_id("house-1")).build()
}
