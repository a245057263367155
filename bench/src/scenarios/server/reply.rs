//! Each message is answered into the same database.

use super::{CHUNK, Database, REPLIES, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: Some(REPLIES),
};

pub(super) fn scenario<D: Database>() -> Scenario<D> {
    Scenario::new(format!("{}.reply", D::NAME), "lease claim, reply by the default publisher, delete each")
        .about(
            "As lease.each.w1, with a small JSON reply to each message, inserted before the message is deleted. The tuned loop \
             inserts 64 replies and deletes 64 messages.",
        )
        .round_trips(TRIP, 3.0)
        .turn("bare", |trial| hand::drain(trial, 1, 1, true))
        .turn("tuned", |trial| hand::drain(trial, 1, CHUNK, true))
        .turn("crate", |trial| own::halves(trial, 1, DRIVE))
        .turn("service", |trial| own::service(trial, |broker| { broker.include(service::answering); }, true))
}
