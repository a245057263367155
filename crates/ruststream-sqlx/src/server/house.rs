//! The tasks that keep house, on connections of their own: one renews leases and answers pings, one serves people's tools.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Base, Count, Dialect, Link, Ping, Renewals};
use crate::error::Trouble;
use crate::operation::{Administration, Letters, Operation, Renewal};

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
