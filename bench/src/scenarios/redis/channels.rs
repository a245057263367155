//! A channel is listened to while one task publishes.

use super::place::Place;
use super::{Redis, hand, own};
use crate::suite::Scenario;

/// As many messages as a listener keeps, so that none is dropped where the publisher is quicker.
pub(super) const AT_MOST: u64 = 200_000;

/// How messages are listened to.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Name,
    Pattern,
    /// By name, on the node of its slot.
    Shard,
}

pub(super) fn scenarios(place: Place) -> Vec<Scenario<Redis>> {
    let mut scenarios = vec![
        of(place, "pubsub", "channel", By::Name),
        of(place, "pattern", "channels by pattern", By::Pattern),
    ];
    if place != Place::Sentinel {
        scenarios.push(of(place, "sharded", "sharded channel", By::Shard));
    }
    scenarios
}

fn of(place: Place, id: &str, title: &str, by: By) -> Scenario<Redis> {
    Scenario::new(format!("redis.{}.{id}", place.word()), format!("{title}, {}", place.title()))
        .about(
            "One task publishes 512-byte JSON messages, 512 a pipeline, on a client of its own; the loop listens, decodes and handles them. \
             Nothing is settled.",
        )
        .at_most(AT_MOST)
        .turn("bare", move |trial| hand::listen(trial, place, by))
        .turn("service", move |trial| own::listen(trial, place, by))
}
