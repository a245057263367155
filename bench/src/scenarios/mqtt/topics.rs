//! The scenarios of topics.

use rumqttc::v5::mqttbytes::QoS;

use super::hand::{self, Acks};
use super::{CHUNK, FILTERS, Mqtt, TRIP, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

/// As much as a run takes at most: the server keeps what waits for a session in memory.
const AT_MOST: u64 = 200_000;

/// How many messages a task publishes with one call where it does not await each.
const GROUP: u64 = 128;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

/// All of them.
pub(super) fn scenarios() -> Vec<Scenario<Mqtt>> {
    vec![
        each("mqtt.qos0", "QoS 0 topic, 512 B JSON", QoS::AtMostOnce, 1),
        each("mqtt.qos1", "QoS 1 topic, 512 B JSON, ack each", QoS::AtLeastOnce, 1),
        each("mqtt.qos1-8", "QoS 1 topic, 8 workers", QoS::AtLeastOnce, 8),
        batch(),
        filters(),
        publish(),
        publish_each(),
    ]
}

fn each(name: &'static str, title: &'static str, quality: QoS, workers: usize) -> Scenario<Mqtt> {
    let scenario = Scenario::new(name, title)
        .about(
            "512-byte JSON messages are read that wait for a session; those of QoS 0 are published meanwhile, 1,024 ahead at most. The bare loop drives the client's event loop, decodes and handles each \
             message and acknowledges it then; the tuned one has the client acknowledge what it reads, before it is handled, which a crash \
             makes a loss. Both let the server send 2,048 ahead.",
        )
        .at_most(AT_MOST)
        .workers(workers)
        .turn("bare", move |trial| hand::drain(trial, quality, Acks::Each, 1));
    let scenario = if quality == QoS::AtMostOnce {
        scenario
    } else {
        scenario.turn("tuned", move |trial| hand::drain(trial, quality, Acks::Early, 1))
    };
    scenario
        .turn("crate", move |trial| own::halves(trial, quality, DRIVE, 1))
        .turn("service", move |trial| {
            own::service(trial, quality, 1, move |broker, sources| {
                for source in sources {
                    broker.include(service::each).source(source).workers(workers);
                }
            })
        })
}

fn batch() -> Scenario<Mqtt> {
    let quality = QoS::AtLeastOnce;
    Scenario::new("mqtt.batch64", "QoS 1 topic, batches of 64 assembled on the client")
        .about("As mqtt.qos1, with a handler that takes up to 64 messages at once.")
        .at_most(AT_MOST)
        .turn("bare", move |trial| hand::drain(trial, quality, Acks::Each, 1))
        .turn("tuned", move |trial| hand::drain(trial, quality, Acks::Early, 1))
        .turn("crate", move |trial| own::halves(trial, quality, DRIVE, 1))
        .turn("service", move |trial| {
            own::service(trial, quality, 1, |broker, sources| {
                for source in sources {
                    broker.include(service::batch).source(source).batch(CHUNK);
                }
            })
        })
}

fn filters() -> Scenario<Mqtt> {
    let quality = QoS::AtLeastOnce;
    Scenario::new("mqtt.filters-1000", "QoS 1, each message to one of 1,000 subscriptions")
        .about(
            "As mqtt.qos1, with 1,000 subscriptions that get a message each in turn. By hand their handlers stand in a map by topic; the \
             service has 1,000 handlers. Connecting and subscribing is part of each run.",
        )
        .at_most(AT_MOST)
        .turn("bare", move |trial| hand::drain(trial, quality, Acks::Each, FILTERS))
        .turn("crate", move |trial| own::halves(trial, quality, DRIVE, FILTERS))
        .turn("service", move |trial| {
            own::service(trial, quality, FILTERS, |broker, sources| {
                for source in sources {
                    broker.include(service::each).source(source);
                }
            })
        })
}

fn publish() -> Scenario<Mqtt> {
    Scenario::new("mqtt.publish-8", "publish QoS 1 from 8 tasks, pipelined")
        .about(
            "Each of 8 tasks encodes and publishes messages of 512 bytes. By hand none is awaited: up to 1,024 are on their way, the client's \
             most, and their acknowledgements are counted. The crate's tasks publish 128 a call and await their confirms.",
        )
        .at_most(AT_MOST)
        .workers(8)
        .turn("bare", |trial| hand::publish_pipelined(trial, 8))
        .turn("crate", |trial| own::publish_groups(trial, 8, GROUP))
        .turn("service", |trial| own::publish_groups_by_app(trial, 8, GROUP))
}

fn publish_each() -> Scenario<Mqtt> {
    Scenario::new("mqtt.publish-each-8", "publish QoS 1 from 8 tasks, each confirmed before the next")
        .about(
            "Each of 8 tasks encodes a message of 512 bytes, publishes it and awaits its acknowledgement before the next. The bare loop pairs \
             acknowledgements with publishes by their order, since the client does not tell whose one is.",
        )
        .at_most(AT_MOST)
        .workers(8)
        .round_trips(TRIP, 1.0 / 8.0)
        .turn("bare", |trial| hand::publish_each(trial, 8))
        .turn("crate", |trial| own::publish(trial, 8))
        .turn("service", |trial| own::publish_by_app(trial, 8))
}
