//! A producer and four workers, in any order.

use super::{CAPACITY, Memory, QUEUE, lanes, service};
use crate::suite::Scenario;

const WORKERS: usize = 4;

pub(super) fn scenario() -> Scenario<Memory> {
    Scenario::new("memory.pool4-flow", "a producer and four workers")
        .about(
            "As memory.flow, with four workers. The bare loop deals the messages out in turn to four tasks, each with a channel of its \
             own. There is no loop of the crate: handing messages to workers is what the runtime does.",
        )
        .workers(WORKERS)
        .turn("bare", |trial| lanes::flow(trial, WORKERS, |number| number))
        .turn("service", |trial| async move {
            let broker = super::broker(CAPACITY);
            trial
                .timed(service::flow(broker.clone(), trial.tally(), trial.messages(), WORKERS, None))
                .await?;
            trial.expect("acked messages", broker.counts(QUEUE).acked, trial.messages())
        })
}
