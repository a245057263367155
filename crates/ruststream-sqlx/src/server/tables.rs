//! The tasks that work on tables of the user's own: one claims, one does the rest.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Base, Dialect, Link};
use crate::error::Trouble;
use crate::operation::Operation;
use crate::table::{TableAnswer, give_back};

pub(super) async fn run<D: Dialect>(base: Arc<Base<D>>, mut receiver: mpsc::Receiver<Operation>) {
    let mut link = Link::new(base);
    let mut closing = None;
    while let Some(operation) = receiver.recv().await {
        match operation {
            Operation::Table(work, reply) => {
                let answer = match link.run(&work).await {
                    Ok(TableAnswer::Failed(failure)) => Err(failure),
                    answer => answer.map_err(Trouble::into_failure),
                };
                // No one takes it any more: the rows go back at once.
                if let Err(Ok(answer)) = reply.send(answer)
                    && let Some(back) = give_back(&work, &answer)
                {
                    let _ = link.run(&back).await;
                }
            }
            Operation::Close { reply } => {
                closing = Some(reply);
                break;
            }
            _ => {}
        }
    }
    link.close().await;
    if let Some(reply) = closing {
        let _ = reply.send(Ok(()));
    }
}
