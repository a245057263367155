//! The tasks that keep house, on connections of their own: one renews leases and answers pings, one serves people's tools.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Base, Count, Dialect, Link, Ping, Renewals};
use crate::error::Trouble;
use crate::operation::{
    Administration, Letters, Needs, Opening, Operation, PruneBatch, Pruning, Renewal, Reply, answer_pruning,
};

pub(super) async fn run<D: Dialect>(base: Arc<Base<D>>, mut receiver: mpsc::Receiver<Operation>) {
    let mut link = Link::new(Arc::clone(&base));
    let mut patient = Link::patient(Arc::clone(&base));
    let mut closing = None;
    while let Some(operation) = receiver.recv().await {
        match operation {
            Operation::Renew(Renewal { mut rows, lease, reply }) => {
                rows.sort_unstable();
                let lost = link.run(&Renewals { rows, lease }).await;
                let _ = reply.send(lost.map_err(Trouble::into_failure));
            }
            Operation::Ping { reply } => {
                let _ = reply.send(link.run(&Ping).await.map_err(Trouble::into_failure));
            }
            Operation::Administer(Administration { what, reply }) => {
                let changed = patient.run(&what).await;
                base.news.tell_all();
                let _ = reply.send(changed.map_err(Trouble::into_failure));
            }
            Operation::Letters(Letters { which, reply }) => {
                let _ = reply.send(patient.run(&which).await.map_err(Trouble::into_failure));
            }
            Operation::Count { queue, reply } => {
                let _ = reply.send(patient.run(&Count(queue)).await.map_err(Trouble::into_failure));
            }
            Operation::Open(Opening { mut needs, reply }) => {
                needs.make = base.settings.migrate;
                let opened = patient.run(&needs).await.map_err(Trouble::into_failure);
                let _ = reply.send(opened.and_then(|missing| Needs::check(&base.settings.label, &missing)));
            }
            Operation::Prune(Pruning { batch, reply }) => prune(&mut patient, &batch, reply).await,
            Operation::Close { reply } => {
                closing = Some(reply);
                break;
            }
            #[cfg(test)]
            Operation::Panic => panic!("a test asked for it"),
            _ => {}
        }
    }
    link.close().await;
    patient.close().await;
    if let Some(reply) = closing {
        let _ = reply.send(Ok(()));
    }
}

/// Deletes a batch after the other, until one is not full.
async fn prune<D: Dialect>(link: &mut Link<D>, batch: &PruneBatch, reply: Option<Reply<u64>>) {
    let mut pruned = 0;
    let done = loop {
        match link.run(batch).await {
            Ok(deleted) => {
                pruned += deleted;
                if deleted < batch.limit.unsigned_abs() {
                    break Ok(pruned);
                }
                tokio::task::yield_now().await;
            }
            Err(trouble) => break Err(trouble.into_failure()),
        }
    };
    answer_pruning(&batch.queue, done, reply);
}
