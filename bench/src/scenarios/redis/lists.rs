//! A list is emptied, each message held until it is settled.

use super::place::Place;
use super::{CHUNK, Redis, TRIP, hand, own};
use crate::scenarios::halves::Drive;
use crate::scenarios::service;
use crate::suite::Scenario;

const DRIVE: Drive = Drive {
    chunk: CHUNK,
    reply_to: None,
};

pub(super) fn scenarios(place: Place) -> Vec<Scenario<Redis>> {
    vec![
        Scenario::new(format!("redis.{}.list", place.word()), format!("reliable list, {}", place.title()))
            .about(
                "A list of 512-byte JSON messages is emptied. The bare loop moves one to a list of its own (BLMOVE), decodes and handles it, and \
                 removes it there (LREM).",
            )
            .at_most(1_000_000)
            .round_trips(TRIP, 2.0)
            .turn("bare", move |trial| hand::empty_list(trial, place))
            .turn("crate", move |trial| own::list_halves(trial, place, DRIVE))
            .turn("service", move |trial| {
                own::list_service(trial, place, |broker, source| {
                    broker.include(service::each).source(source);
                })
            }),
    ]
}
