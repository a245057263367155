//! A stream is read by a consumer group, and a stream is written.

use super::{CHUNK, Redis, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

/// The most messages that a stream is filled with: some 600 MB of server memory.
const AT_MOST: u64 = 1_000_000;

pub(super) fn scenarios() -> Vec<Scenario<Redis>> {
    vec![each(), batch(), publish()]
}

fn each() -> Scenario<Redis> {
    Scenario::new("redis.standalone.stream", "stream, consumer group, one server")
        .about(
            "A stream of 512-byte JSON messages is read by a consumer group. The bare loop reads one entry, decodes and handles it and acks \
             it; the tuned one reads 64 and acks 64 by one command.",
        )
        .at_most(AT_MOST)
        .round_trips(TRIP, 2.0)
        .turn("bare", |trial| hand::drain(trial, 1))
        .turn("tuned", |trial| hand::drain(trial, CHUNK))
        .turn("crate", |trial| own::halves(trial, DRIVE))
        .turn("service", |trial| own::service(trial, |broker, source| { broker.include(service::each).source(source); }))
}

fn batch() -> Scenario<Redis> {
    Scenario::new(
        "redis.standalone.stream-batch64",
        "stream, consumer group, batches of 64, one server",
    )
    .about(
        "As redis.standalone.stream, with a handler that takes up to 64 messages at once, held against the tuned loop.",
    )
    .at_most(AT_MOST)
    .round_trips(TRIP, 2.0 / CHUNK as f64)
    .baseline("tuned")
    .turn("bare", |trial| hand::drain(trial, 1))
    .turn("tuned", |trial| hand::drain(trial, CHUNK))
    .turn("crate", |trial| own::halves(trial, DRIVE))
    .turn("service", |trial| {
        own::service(trial, |broker, source| {
            broker.include(service::batch).source(source).batch(CHUNK);
        })
    })
}

fn publish() -> Scenario<Redis> {
    Scenario::new("redis.standalone.publish-8", "publish from 8 tasks, XADD, one server")
        .about(
            "Each of 8 tasks encodes a message of 512 bytes, adds it to a stream and awaits the answer before the next. In every loop the tasks \
             share one connection, whose client sends their commands together.",
        )
        .at_most(AT_MOST)
        .workers(8)
        .round_trips(TRIP, 1.0 / 8.0)
        .turn("bare", |trial| hand::publish(trial, 8))
        .turn("crate", |trial| own::publish(trial, 8))
        .turn("service", |trial| own::publish_by_app(trial, 8))
}
