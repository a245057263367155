//! A stream is read by a consumer group, and a stream is written.

use super::place::Place;
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

pub(super) fn scenarios(place: Place) -> Vec<Scenario<Redis>> {
    vec![
        each(place),
        batch(place),
        with_commands(place, false),
        with_commands(place, true),
        publish(place),
    ]
}

fn named(place: Place, id: &str, title: &str) -> Scenario<Redis> {
    Scenario::new(
        format!("redis.{}.{id}", place.word()),
        format!("{title}, {}", place.title()),
    )
    .at_most(AT_MOST)
}

fn each(place: Place) -> Scenario<Redis> {
    named(place, "stream", "stream, consumer group")
        .about(
            "A stream of 512-byte JSON messages is read by a consumer group. The bare loop reads one entry, decodes and handles it and acks \
             it; the tuned one reads 64 and acks 64 by one command.",
        )
        .round_trips(TRIP, 2.0)
        .turn("bare", move |trial| hand::drain(trial, place, 1))
        .turn("tuned", move |trial| hand::drain(trial, place, CHUNK))
        .turn("crate", move |trial| own::halves(trial, place, DRIVE))
        .turn("service", move |trial| {
            own::service(trial, place, |broker, source| {
                broker.include(service::each).source(source);
            })
        })
}

fn batch(place: Place) -> Scenario<Redis> {
    named(place, "stream-batch64", "stream, consumer group, batches of 64")
        .about("As the stream above, with a handler that takes up to 64 messages at once, held against the tuned loop.")
        .round_trips(TRIP, 2.0 / CHUNK as f64)
        .baseline("tuned")
        .turn("bare", move |trial| hand::drain(trial, place, 1))
        .turn("tuned", move |trial| hand::drain(trial, place, CHUNK))
        .turn("crate", move |trial| own::halves(trial, place, DRIVE))
        .turn("service", move |trial| {
            own::service(trial, place, |broker, source| {
                broker.include(service::batch).source(source).batch(CHUNK);
            })
        })
}

fn with_commands(place: Place, is_atomic: bool) -> Scenario<Redis> {
    let (id, title, about) = if is_atomic {
        (
            "stream-atomic",
            "stream, one INCR a message and its ack at once",
            "As the stream above; each message is counted in the server when it is acked. The bare loop reads one entry, and sends INCR and \
             XACK in MULTI and EXEC; the service has `.atomic()`.",
        )
    } else {
        (
            "stream-pipeline",
            "stream, one INCR a message with its ack",
            "As the stream above; each message is counted in the server when it is acked. The bare loop reads one entry, and sends INCR and \
             XACK in a pipeline; the service has `.pipeline()`.",
        )
    };
    named(place, id, title)
        .about(about)
        .round_trips(TRIP, 2.0)
        .turn("bare", move |trial| hand::drain_with_commands(trial, place, is_atomic))
        .turn("service", move |trial| {
            own::service_with_commands(trial, place, is_atomic)
        })
}

fn publish(place: Place) -> Scenario<Redis> {
    named(place, "publish-8", "publish from 8 tasks, XADD")
        .about(
            "Each of 8 tasks encodes a message of 512 bytes, adds it to a stream and awaits the answer before the next. In every loop the tasks \
             share one connection, whose client sends their commands together.",
        )
        .workers(8)
        .round_trips(TRIP, 1.0 / 8.0)
        .turn("bare", move |trial| hand::publish(trial, place, 8))
        .turn("crate", move |trial| own::publish(trial, place, 8))
        .turn("service", move |trial| own::publish_by_app(trial, place, 8))
}
