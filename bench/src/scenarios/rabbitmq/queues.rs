//! A queue is read, and a queue is written.

use ruststream_lapin::QueueType;

use super::{CHUNK, Rabbit, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

/// Each message settled before the next is taken.
const ONE: Drive = Drive {
    chunk: 1,
    reply_to: None,
};

/// How many messages one call publishes.
const MANY: u64 = 1000;

/// The most messages that a queue is filled with: more would make the server write them out.
const AT_MOST: u64 = 200_000;

pub(super) fn scenarios() -> Vec<Scenario<Rabbit>> {
    let (classic, quorum) = (QueueType::Classic, QueueType::Quorum);
    vec![
        each("rabbitmq.classic", "classic queue, one worker", classic, 1),
        each("rabbitmq.classic-8", "classic queue, 8 workers", classic, 8),
        each("rabbitmq.quorum", "quorum queue, one worker", quorum, 1),
        each("rabbitmq.quorum-8", "quorum queue, 8 workers", quorum, 8),
        settle_each(),
        batch(),
        publish(),
        publish_many(),
    ]
}

fn each(name: &'static str, title: &'static str, queue_type: QueueType, workers: usize) -> Scenario<Rabbit> {
    Scenario::new(name, title)
        .about(
            "A queue of 512-byte JSON messages is read. The bare loop takes a message, decodes and handles it and acks it; the tuned one \
             acks 64 by one frame. Both have 1,024 messages sent ahead.",
        )
        .at_most(AT_MOST)
        .workers(workers)
        .turn("bare", move |trial| hand::drain(trial, queue_type, 1))
        .turn("tuned", move |trial| hand::drain(trial, queue_type, CHUNK as u64))
        .turn("crate", move |trial| own::halves(trial, queue_type, DRIVE))
        .turn("service", move |trial| {
            own::service(trial, queue_type, move |broker, source| {
                broker.include(service::each).source(source).workers(workers);
            })
        })
}

fn settle_each() -> Scenario<Rabbit> {
    Scenario::new("rabbitmq.settle-each", "classic queue, each message acked before the next")
        .about("As rabbitmq.classic, with the halves of the crate driven so that each message is acked before the next is taken.")
        .at_most(AT_MOST)
        .turn("bare", |trial| hand::drain(trial, QueueType::Classic, 1))
        .turn("crate", |trial| own::halves(trial, QueueType::Classic, ONE))
}

fn batch() -> Scenario<Rabbit> {
    Scenario::new("rabbitmq.batch64", "classic queue, batches of 64")
        .about("As rabbitmq.classic, with a handler that takes up to 64 messages at once, held against the tuned loop.")
        .at_most(AT_MOST)
        .baseline("tuned")
        .turn("bare", |trial| hand::drain(trial, QueueType::Classic, 1))
        .turn("tuned", |trial| hand::drain(trial, QueueType::Classic, CHUNK as u64))
        .turn("crate", |trial| own::halves(trial, QueueType::Classic, DRIVE))
        .turn("service", |trial| {
            own::service(trial, QueueType::Classic, |broker, source| {
                broker.include(service::batch).source(source).batch(CHUNK);
            })
        })
}

fn publish() -> Scenario<Rabbit> {
    Scenario::new("rabbitmq.publish-8", "publish from 8 tasks, confirmed")
        .about(
            "Each of 8 tasks encodes a message of 512 bytes, publishes it and awaits its confirm before the next. By hand they share a \
             channel; the crate gives each a channel of its own until it is answered.",
        )
        .at_most(AT_MOST)
        .workers(8)
        .round_trips(TRIP, 1.0 / 8.0)
        .turn("bare", |trial| hand::publish(trial, 8))
        .turn("crate", |trial| own::publish(trial, 8))
        .turn("service", |trial| own::publish_by_app(trial, 8))
}

fn publish_many() -> Scenario<Rabbit> {
    Scenario::new("rabbitmq.publish-many", "publish 1,000 messages a call, confirmed")
        .about(
            "Messages of 512 bytes are published. The bare loop awaits each confirm in turn; the tuned one has 1,000 on their way before it \
             awaits the first, and the crate does so in one call.",
        )
        .at_most(AT_MOST)
        .round_trips(TRIP, 1.0)
        .turn("bare", |trial| hand::publish(trial, 1))
        .turn("tuned", |trial| hand::publish_many(trial, MANY))
        .turn("crate", |trial| own::publish_many(trial, MANY))
}
