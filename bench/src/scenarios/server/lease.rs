//! A full queue is emptied under leases.

use super::{CHUNK, Database, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

pub(super) fn scenarios<D: Database>() -> Vec<Scenario<D>> {
    let workers = [1, 4, 8];
    let mut scenarios = Vec::new();
    scenarios.extend(workers.map(each));
    scenarios.push(strict());
    scenarios.extend(workers.map(batch));
    scenarios
}

/// The handler takes one message.
fn each<D: Database>(workers: usize) -> Scenario<D> {
    Scenario::new(
        format!("{}.lease.each.w{workers}", D::NAME),
        format!("lease claim, delete each, workers({workers})"),
    )
    .about(
        "A table of 512-byte JSON messages is emptied. The bare loop claims one row, decodes and handles it and deletes it; the tuned one \
         claims 64 and deletes 64. Each worker has a connection of its own there; the crate has one that claims and one that settles.",
    )
    .workers(workers)
    .round_trips(TRIP, 2.0)
    .turn("bare", move |trial| hand::drain(trial, workers, 1, false))
    .turn("tuned", move |trial| hand::drain(trial, workers, CHUNK, false))
    .turn("crate", move |trial| own::halves(trial, workers, DRIVE))
    .turn("service", move |trial| own::service(trial, move |broker| { broker.include(service::each).workers(workers); }, false))
}

/// One message is claimed, handled and settled before the next is.
fn strict<D: Database>() -> Scenario<D> {
    Scenario::new(format!("{}.lease.strict.w1", D::NAME), "lease claim, one message in hand at a time")
        .about(
            "As lease.each.w1, with nothing grouped: each message is claimed, handled and deleted before the next is claimed. The \
             service says .prefetch(1).",
        )
        .round_trips(TRIP, 2.0)
        .turn("bare", |trial| hand::drain(trial, 1, 1, false))
        .turn("crate", |trial| own::halves(trial, 1, Drive { chunk: 1, ..DRIVE }))
        .turn("service", |trial| own::service(trial, move |broker| { broker.include(service::each).prefetch(1); }, false))
}

/// The handler takes 64 messages.
fn batch<D: Database>(workers: usize) -> Scenario<D> {
    Scenario::new(
        format!("{}.lease.batch64.w{workers}", D::NAME),
        format!("lease claim in batches of 64, workers({workers})"),
    )
    .about(
        "As lease.each, with a handler that takes up to 64 messages at once. It is held against the tuned loop, which claims 64, \
         handles them and deletes 64; the bare loop, which takes one at a time, stands beside it.",
    )
    .workers(workers)
    .round_trips(TRIP, 2.0 / CHUNK as f64)
    .baseline("tuned")
    .turn("bare", move |trial| hand::drain(trial, workers, 1, false))
    .turn("tuned", move |trial| hand::drain(trial, workers, CHUNK, false))
    .turn("crate", move |trial| own::halves(trial, workers, DRIVE))
    .turn("service", move |trial| own::service(trial, move |broker| { broker.include(service::batch).workers(workers).batch(CHUNK); }, false))
}
