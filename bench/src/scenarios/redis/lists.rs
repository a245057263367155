//! A list is emptied, each message held until it is settled.

use super::{CHUNK, Redis, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

pub(super) fn scenario() -> Scenario<Redis> {
    Scenario::new("redis.standalone.list", "reliable list, one server")
        .about(
            "A list of 512-byte JSON messages is emptied. The bare loop moves one to a list of its own (BLMOVE), decodes and handles it, and \
             removes it there (LREM).",
        )
        .at_most(1_000_000)
        .round_trips(TRIP, 2.0)
        .turn("bare", hand::empty_list)
        .turn("crate", |trial| own::list_halves(trial, DRIVE))
        .turn("service", |trial| own::list_service(trial, |broker, source| { broker.include(service::each).source(source); }))
}
