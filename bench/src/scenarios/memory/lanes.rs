//! What one writes by hand for several workers: a channel for each.

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{CAPACITY, Memory};
use crate::scenarios::work;
use crate::suite::{Failed, Trial};

/// A producer sends each message to the task that `lane` says, of as many as there are workers.
pub(super) async fn flow(trial: Trial<Memory>, workers: usize, lane: fn(u64) -> u64) -> Result<(), Failed> {
    let (messages, tally) = (trial.messages(), trial.tally());
    trial
        .timed(async {
            let mut tasks = JoinSet::new();
            let mut lanes = Vec::with_capacity(workers);
            for _ in 0..workers {
                let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(CAPACITY / workers);
                let tally = tally.clone();
                lanes.push(sender);
                tasks.spawn(async move {
                    while let Some(body) = receiver.recv().await {
                        work::handle(work::decoded(&body)?);
                        tally.one();
                    }
                    Ok::<(), Failed>(())
                });
            }
            tasks.spawn(async move {
                let order = work::small_order();
                for number in 0..messages {
                    let lane = lane(number) as usize % workers;
                    lanes[lane].send(work::encoded(&order)).await?;
                }
                Ok(())
            });
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await
}
