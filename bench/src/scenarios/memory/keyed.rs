//! A producer and eight workers, in the order of each key.

use super::{CAPACITY, Memory, QUEUE, lanes, service};
use crate::suite::Scenario;

const WORKERS: usize = 8;
/// How many customers the messages belong to.
const KEYS: u64 = 64;

pub(super) fn scenario() -> Scenario<Memory> {
    Scenario::new("memory.keyed8-flow", "a producer and eight workers, each key in order")
        .about(
            "As memory.flow, with eight workers and 64 keys whose messages keep their order. The bare loop has a task for an eighth of \
             the keys, each with a channel of its own.",
        )
        .workers(WORKERS)
        .turn("bare", |trial| lanes::flow(trial, WORKERS, key))
        .turn("service", |trial| async move {
            let broker = super::broker(CAPACITY);
            let key = |number| key(number).to_le_bytes().to_vec();
            trial
                .timed(service::flow(broker.clone(), trial.tally(), trial.messages(), WORKERS, Some(key)))
                .await?;
            trial.expect("acked messages", broker.counts(QUEUE).acked, trial.messages())
        })
}

/// The customer of a message: scattered, the same in every run.
fn key(number: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % KEYS
}
