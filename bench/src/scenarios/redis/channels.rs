//! A channel is listened to while one task publishes.

use super::{Redis, hand, own};
use crate::suite::Scenario;

/// As many messages as a listener keeps, so that none is dropped where the publisher is quicker.
pub(super) const AT_MOST: u64 = 200_000;

pub(super) fn scenarios() -> Vec<Scenario<Redis>> {
    vec![
        of("pubsub", "channel, one server", false),
        of("pattern", "channels by pattern, one server", true),
    ]
}

fn of(id: &str, title: &str, by_pattern: bool) -> Scenario<Redis> {
    Scenario::new(format!("redis.standalone.{id}"), title)
        .about(
            "One task publishes 512-byte JSON messages, 512 a pipeline, on a client of its own; the loop listens, decodes and handles them. \
             Nothing is settled.",
        )
        .at_most(AT_MOST)
        .turn("bare", move |trial| hand::listen(trial, by_pattern))
        .turn("service", move |trial| own::listen(trial, by_pattern))
}
