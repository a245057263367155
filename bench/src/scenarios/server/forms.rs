//! The other forms of a claim, and a deep table.

use ruststream_sqlx::{Inbox, LockKey};

use super::{CHUNK, Database, QUEUE, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

pub(super) fn scenarios<D: Database>() -> Vec<Scenario<D>> {
    vec![row_lock(1), row_lock(8), advisory(), settle_each(), deep()]
}

fn locked() -> Inbox {
    Inbox::queue(QUEUE).row_lock()
}

fn by_name() -> Inbox {
    Inbox::queue(QUEUE).advisory_lock(LockKey::Id)
}

fn singly() -> Inbox {
    Inbox::queue(QUEUE).settle_each()
}

fn plain() -> Inbox {
    Inbox::queue(QUEUE)
}

/// Rows are locked while they are handled.
fn row_lock<D: Database>(workers: usize) -> Scenario<D> {
    Scenario::new(
        format!("{}.rowlock.each.w{workers}", D::NAME),
        format!("row lock claim, delete each, workers({workers})"),
    )
    .about(
        "As lease.each, with rows that are locked (FOR UPDATE SKIP LOCKED) in a transaction which is open while they are handled. The \
         bare loop locks one row, deletes it and commits; the tuned one does so with 64. The crate counts the attempt besides, so that \
         a message which kills its process is counted too.",
    )
    .workers(workers)
    .round_trips(TRIP, 4.0)
    .turn("bare", move |trial| hand::drain_locked(trial, workers, 1))
    .turn("tuned", move |trial| hand::drain_locked(trial, workers, CHUNK))
    .turn("crate", move |trial| own::halves_of(trial, workers, DRIVE, locked))
    .turn("service", move |trial| {
        own::service(
            trial,
            move |broker| {
                broker.include(service::each).source(locked()).workers(workers);
            },
            false,
        )
    })
}

/// A lock by name beside the lease.
fn advisory<D: Database>() -> Scenario<D> {
    Scenario::new(format!("{}.advisory.each.w1", D::NAME), "advisory lock claim, delete each")
        .about(
            "As lease.each.w1, with an advisory lock named after the row for as long as it is handled. The bare loop claims one row, takes \
             its lock, deletes it and gives the lock back.",
        )
        .round_trips(TRIP, 4.0)
        .turn("bare", hand::drain_by_name)
        .turn("crate", |trial| own::halves_of(trial, 1, DRIVE, by_name))
        .turn("service", |trial| {
            own::service(
                trial,
                |broker| {
                    broker.include(service::each).source(by_name());
                },
                false,
            )
        })
}

/// Nothing is grouped.
fn settle_each<D: Database>() -> Scenario<D> {
    Scenario::new(
        format!("{}.settle-each.w1", D::NAME),
        "one claim and one delete for each message",
    )
    .about("As lease.each.w1, in the mode that groups nothing: each message has a claim and a delete of its own.")
    .round_trips(TRIP, 2.0)
    .turn("bare", |trial| hand::drain(trial, 1, 1, false))
    .turn("crate", |trial| own::halves_of(trial, 1, DRIVE, singly))
    .turn("service", |trial| {
        own::service(
            trial,
            |broker| {
                broker.include(service::each).source(singly());
            },
            false,
        )
    })
}

/// Most of the table is for later, done or dead.
fn deep<D: Database>() -> Scenario<D> {
    Scenario::new(format!("{}.deep", D::NAME), "a table that is full of other rows")
        .about(
            "As the crate's halves in lease.each.w1, on a table that has nothing else, and on one with many rows that are scheduled for \
             tomorrow, a fifth as many that are done and a twentieth that are dead: a hundred for each message, and a million at most.",
        )
        .round_trips(TRIP, 2.0 / CHUNK as f64)
        .baseline("empty")
        .turn("empty", |trial| own::halves_of(trial, 1, DRIVE, plain))
        .turn("deep", |trial| own::deep(trial, DRIVE))
}
