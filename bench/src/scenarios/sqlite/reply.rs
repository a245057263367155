//! Each message is answered into the same file.

use super::{CHUNK, REPLIES, Sqlite, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: Some(REPLIES),
};

pub(super) fn scenario() -> Scenario<Sqlite> {
    Scenario::new("sqlite.reply", "lease claim, reply by the default publisher, delete each")
        .about(
            "As sqlite.lease.each.w1, with a small JSON reply to each message, inserted before the message is deleted. The tuned loop \
             inserts 64 replies and deletes 64 messages in one transaction.",
        )
        .round_trips(TRIP, 3.0)
        .turn("bare", |trial| hand::reply(trial, 1))
        .turn("tuned", |trial| hand::reply(trial, CHUNK))
        .turn("crate", |trial| own::halves(trial, 1, DRIVE))
        .turn("service", |trial| {
            own::service(
                trial,
                |broker| {
                    broker.include(service::answering);
                },
                true,
            )
        })
}
