//! The rows, in the order of the page.

use super::OverRedis;
use super::app::{Form, delivers, publishes, round_trips};
use crate::suite::Scenario;

/// The most messages of a call: what fits into the server's memory.
const AT_MOST: u64 = 200_000;

pub(super) fn scenarios() -> Vec<Scenario<OverRedis>> {
    let mut scenarios = vec![untracked(), publish(1), publish(8)];
    scenarios.extend([1, 4, 8].map(delivery));
    scenarios.extend([1, 8].map(round_trip));
    scenarios
}

fn untracked() -> Scenario<OverRedis> {
    Scenario::new("outbox.untracked", "an untracked message through both layers")
        .about("An app publishes and handles messages of 512 bytes, with 8 workers and from 8 tasks. The crate's has both layers, for another name.")
        .at_most(AT_MOST)
        .workers(8)
        .turn("none", |trial| round_trips(trial, Form::None, 8, false))
        .turn("crate", |trial| round_trips(trial, Form::Crate, 8, false))
}

fn publish(tasks: usize) -> Scenario<OverRedis> {
    Scenario::new(
        format!("outbox.publish-{tasks}"),
        format!("a tracked publish from outside a handler, {tasks} tasks"),
    )
    .about("Each task publishes a message of 512 bytes and awaits the answer before the next. By hand, a row is inserted before that.")
    .at_most(AT_MOST)
    .workers(tasks)
    .turn("none", move |trial| publishes(trial, Form::None, tasks))
    .turn("hand", move |trial| publishes(trial, Form::Hand, tasks))
    .turn("crate", move |trial| publishes(trial, Form::Crate, tasks))
}

fn delivery(workers: usize) -> Scenario<OverRedis> {
    Scenario::new(
        format!("outbox.delivery-{workers}"),
        format!("a tracked delivery fetched and marked, workers({workers})"),
    )
    .about("A stream that was filled before is read. By hand, the handler selects the record, handles the message, and marks the record.")
    .at_most(AT_MOST)
    .workers(workers)
    .turn("none", move |trial| delivers(trial, Form::None, workers))
    .turn("hand", move |trial| delivers(trial, Form::Hand, workers))
    .turn("crate", move |trial| delivers(trial, Form::Crate, workers))
}

fn round_trip(workers: usize) -> Scenario<OverRedis> {
    Scenario::new(
        format!("outbox.round-trip-{workers}"),
        format!("a tracked round trip: recorded, delivered, fetched and marked, workers({workers})"),
    )
    .about("As many tasks publish as there are workers, while the messages are handled.")
    .at_most(AT_MOST)
    .workers(workers)
    .turn("none", move |trial| round_trips(trial, Form::None, workers, true))
    .turn("hand", move |trial| round_trips(trial, Form::Hand, workers, true))
    .turn("crate", move |trial| round_trips(trial, Form::Crate, workers, true))
}
