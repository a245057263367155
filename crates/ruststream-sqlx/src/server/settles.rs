//! The task that settles: each group of receipts is a statement for each kind of end, and one bad row never undoes the others.

use std::sync::Arc;

use ruststream::transport::TransportError;
use tokio::sync::mpsc;

use super::inserts::distinct;
use super::{Base, Dialect, Link, SettleRows};
use crate::engine::Outlet;
use crate::error::{Failure, Trouble};
use crate::operation::{Operation, Part, SettleAnswer, Settlement};

pub(super) async fn run<D: Dialect>(base: Arc<Base<D>>, mut receiver: mpsc::Receiver<Operation>, outlet: Outlet) {
    let mut link = Link::new(Arc::clone(&base));
    let mut closing = None;
    while let Some(operation) = receiver.recv().await {
        match operation {
            Operation::Settle(Settlement {
                queue,
                parts,
                frees,
                reply,
            }) => {
                let replied = replied(&parts);
                let answer = settle(&base, &mut link, (&queue, frees), SettleRows::sort(parts)).await;
                tell(&base, &outlet, replied);
                match reply {
                    Some(reply) => drop(reply.send(Ok(answer))),
                    None => report(&queue, answer.failure),
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

async fn settle<D: Dialect>(
    base: &Base<D>,
    link: &mut Link<D>,
    (queue, frees): (&str, bool),
    kinds: Vec<SettleRows>,
) -> SettleAnswer {
    let mut answer = SettleAnswer::default();
    let mut work: Vec<SettleRows> = kinds.into_iter().rev().collect();
    while let Some(rows) = work.pop() {
        match link.run(&rows).await {
            Ok(settled) => {
                let settled = usize::try_from(settled).unwrap_or(usize::MAX);
                answer.stale += rows.len().saturating_sub(settled);
                if frees || rows.come_again() {
                    base.news.tell(queue, settled);
                }
            }
            // One of them is at fault: the others come through by themselves.
            Err(Trouble::Refused(_)) if rows.len() > 1 => work.extend(rows.singly().into_iter().rev()),
            Err(Trouble::Refused(failure)) => fail(&mut answer, &rows, failure),
            Err(Trouble::Contended(failure) | Trouble::Lost(failure)) => {
                fail(&mut answer, &rows, failure.clone());
                for rows in work.drain(..) {
                    fail(&mut answer, &rows, failure.clone());
                }
            }
        }
    }
    answer
}

/// The queues that parts store replies in, with how many.
fn replied(parts: &[Part]) -> Vec<(Arc<str>, usize)> {
    let rows = parts.iter().filter_map(|part| match part {
        Part::Answer(row) => Some(row.replies.iter()),
        _ => None,
    });
    distinct(rows.flatten())
}

/// Tells who waits for replies, here and elsewhere.
fn tell<D: Dialect>(base: &Base<D>, outlet: &Outlet, replied: Vec<(Arc<str>, usize)>) {
    if replied.is_empty() {
        return;
    }
    for (queue, rows) in &replied {
        base.news.tell(queue, *rows);
    }
    if base.dialect.tells() {
        let queues = replied.into_iter().map(|(queue, _)| queue).collect();
        outlet.notify(Operation::Tell { queues });
    }
}

fn fail(answer: &mut SettleAnswer, rows: &SettleRows, failure: Failure) {
    answer.failed.extend(rows.rows());
    answer.failure.get_or_insert(failure);
}

/// What was to be given back without anyone waiting comes back when its lease ends.
fn report(queue: &str, failure: Option<Failure>) {
    if let Some(failure) = failure {
        let error = TransportError::from(failure);
        tracing::warn!(queue, %error, "messages were not given back: they are delivered again when their lease ends");
    }
}
