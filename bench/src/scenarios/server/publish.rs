//! Messages are published, each confirmed before its task sends the next.

use super::{CHUNK, Database, TRIP, hand, own};
use crate::suite::Scenario;

pub(super) fn scenarios<D: Database>() -> Vec<Scenario<D>> {
    vec![of(1), of(8)]
}

fn of<D: Database>(tasks: usize) -> Scenario<D> {
    let from = if tasks == 1 { "one task" } else { "8 tasks" };
    Scenario::new(format!("{}.publish-{tasks}", D::NAME), format!("publish from {from}, one insert each"))
        .about(
            "Each task encodes a message of 512 bytes, publishes it and awaits its confirmation before the next. The bare loop inserts one \
             row by one statement on a connection of the task's own; the tuned one inserts 64 rows by one statement.",
        )
        .workers(tasks)
        .round_trips(TRIP, 1.0)
        .turn("bare", move |trial| hand::publish(trial, tasks, 1))
        .turn("tuned", move |trial| hand::publish(trial, tasks, CHUNK))
        .turn("crate", move |trial| own::publish(trial, tasks))
        .turn("service", move |trial| own::publish_by_app(trial, tasks))
}
