//! The half of a subscription that gives receipts back.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

use ruststream::transport::{Settle, Settled, TransportError, Verdict};

use crate::clock::millis;
use crate::engine::Engine;
use crate::lease::{Book, Chunk, Held, lease_id};
use crate::operation::{Operation, Part, Renewal, RetryRow, Settlement};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::transaction::Slot;

/// What is left of a delivery: the right to settle its row, while its lease lasts.
pub struct InboxReceipt {
    pub(crate) held: Held,
    /// The transaction that its handler asked for.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) slot: Option<Arc<dyn Slot>>,
}

impl fmt::Debug for InboxReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxReceipt")
            .field("id", &self.held.id())
            .finish_non_exhaustive()
    }
}

/// Gives receipts back to a queue.
pub struct InboxSettle {
    engine: Engine,
    queue: Arc<str>,
    lease: i64,
    book: Book,
}

impl InboxSettle {
    pub(crate) fn new(engine: Engine, queue: Arc<str>, lease: i64, book: Book) -> Self {
        Self {
            engine,
            queue,
            lease,
            book,
        }
    }
}

impl Settle for InboxSettle {
    type Receipt = InboxReceipt;

    async fn settle(&mut self, finished: &mut Vec<(InboxReceipt, Verdict)>) -> Result<Settled, TransportError> {
        if finished.is_empty() {
            return Ok(Settled::default());
        }
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        let committed_late = end_transactions(finished).await;
        #[cfg(not(any(feature = "postgres", feature = "mysql")))]
        let committed_late = 0;
        if finished.is_empty() {
            return Ok(Settled { stale: committed_late });
        }
        let parts = into_parts(finished);
        let queue = Arc::clone(&self.queue);
        let answer = self
            .engine
            .ask(|reply| {
                Operation::Settle(Settlement {
                    queue,
                    parts,
                    reply: Some(reply),
                })
            })
            .await?;
        let Some(failure) = answer.failure else {
            finished.clear();
            return Ok(Settled {
                stale: answer.stale + committed_late,
            });
        };
        let failed: HashSet<(i64, i64)> = answer.failed.into_iter().collect();
        finished.retain(|(receipt, _)| failed.contains(&(receipt.held.id(), receipt.held.chunk().token)));
        Err(failure.into())
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        let rows = self.book.held();
        if rows.is_empty() {
            return Ok(());
        }
        let lease = self.lease;
        let missing = self
            .engine
            .ask(|reply| Operation::Renew(Renewal { rows, lease, reply }))
            .await?;
        for row in missing {
            // Settled while the renewal was on its way: nothing was lost.
            if !self.book.lose(row.id, row.token) {
                continue;
            }
            if row.gone {
                tracing::warn!(queue = %self.queue, id = row.id, "a message is gone: its row was deleted while it was handled");
            } else {
                tracing::warn!(queue = %self.queue, id = row.id, "a lease was lost: the message was given to someone else");
            }
            lost.push(lease_id(row.id, row.token));
        }
        Ok(())
    }
}

impl fmt::Debug for InboxSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxSettle")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Ends the transactions of handlers, all at once: acks commit, each with its row; what else there is to say is said once its
/// transaction is undone. Answers how many came too late.
#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn end_transactions(finished: &mut Vec<(InboxReceipt, Verdict)>) -> usize {
    let mut with = finished
        .extract_if(.., |(receipt, _)| receipt.slot.is_some())
        .collect::<Vec<_>>();
    let endings = with.iter_mut().map(async |(receipt, verdict)| {
        let slot = receipt.slot.take()?;
        if *verdict != Verdict::Ack {
            slot.rollback().await;
            return None;
        }
        let (id, token) = (receipt.held.id(), receipt.held.chunk().token);
        match slot.commit(id, token).await {
            Ok(held) => Some(held),
            Err(failure) => {
                // If it did commit after all, the row is gone, and the retry finds nothing.
                let error = TransportError::from(failure);
                tracing::warn!(id, %error, "a transaction did not commit: its message is handled again");
                let after = Duration::from_millis(100 << slot.attempt().min(9));
                *verdict = Verdict::Retry { after };
                None
            }
        }
    });
    let ended = futures_util::future::join_all(endings).await;
    let mut late = 0;
    for (pair, ended) in with.into_iter().zip(ended) {
        match ended {
            Some(true) => {}
            Some(false) => late += 1,
            None => finished.push(pair),
        }
    }
    late
}

/// One group under way: rows of one claim that end the same way.
struct Group<'a> {
    chunk: &'a Arc<Chunk>,
    release: bool,
    part: usize,
    /// The place in the claim of the row added last; `None` once a place was skipped.
    last: Option<u32>,
}

/// Sorts receipts into as few parts as will do.
fn into_parts(finished: &[(InboxReceipt, Verdict)]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut retries = None;
    for (receipt, verdict) in finished {
        let held = &receipt.held;
        let (id, token) = (held.id(), held.chunk().token);
        match verdict {
            Verdict::Retry { after } => {
                let row = RetryRow {
                    id,
                    token,
                    after: millis(*after),
                };
                let part = *retries.get_or_insert_with(|| {
                    parts.push(Part::Retry(Vec::new()));
                    parts.len() - 1
                });
                if let Part::Retry(rows) = &mut parts[part] {
                    rows.push(row);
                }
            }
            Verdict::Return { attempts } => parts.push(Part::Return {
                id,
                token,
                attempts: *attempts,
            }),
            Verdict::DeadLetter(letter) => parts.push(Part::Dead {
                id,
                token,
                letter: letter.clone(),
            }),
            // A verdict that this version does not know lets the message be handed out again.
            verdict => {
                let release = !matches!(verdict, Verdict::Ack);
                add(held, release, &mut groups, &mut parts);
            }
        }
    }
    for group in groups {
        if let Part::Ack { dense, .. } = &mut parts[group.part] {
            *dense = group.chunk.dense && group.last.is_some();
        }
    }
    parts
}

fn add<'a>(held: &'a Held, release: bool, groups: &mut Vec<Group<'a>>, parts: &mut Vec<Part>) {
    let (id, index) = (held.id(), held.index());
    // The claim of the receipt before is the likely one.
    let known = groups
        .iter_mut()
        .rev()
        .find(|group| group.release == release && Arc::ptr_eq(group.chunk, held.chunk()));
    if let Some(group) = known {
        if let Part::Ack { ids, .. } | Part::Release { ids, .. } = &mut parts[group.part] {
            ids.push(id);
        }
        group.last = group.last.filter(|last| last + 1 == index).map(|_| index);
        return;
    }
    let token = held.chunk().token;
    let ids = vec![id];
    parts.push(if release {
        Part::Release { token, ids }
    } else {
        Part::Ack {
            token,
            ids,
            dense: false,
        }
    });
    groups.push(Group {
        chunk: held.chunk(),
        release,
        part: parts.len() - 1,
        last: Some(index),
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn receipts(token: i64, ids: &[i64]) -> Vec<InboxReceipt> {
        let chunk = Chunk::new(token, ids.into());
        (0..ids.len())
            .map(|index| InboxReceipt {
                held: Held::new(Arc::clone(&chunk), index),
                #[cfg(any(feature = "postgres", feature = "mysql"))]
                slot: None,
            })
            .collect()
    }

    #[test]
    fn rows_of_one_claim_share_a_part() {
        let acked: Vec<_> = receipts(9, &[1, 2, 3]).into_iter().map(|r| (r, Verdict::Ack)).collect();
        let parts = into_parts(&acked);
        assert!(matches!(&parts[..], [Part::Ack { token: 9, ids, dense: true }] if *ids == [1, 2, 3]));
    }

    #[test]
    fn a_gap_is_never_spanned() {
        let mut some = receipts(9, &[1, 2, 3]);
        let kept = some.remove(1);
        let acked: Vec<_> = some.into_iter().map(|r| (r, Verdict::Ack)).collect();
        let parts = into_parts(&acked);
        assert!(matches!(&parts[..], [Part::Ack { dense: false, .. }]));
        drop(kept);
    }

    #[test]
    fn each_kind_of_end_has_its_part() {
        let verdicts = [
            Verdict::Ack,
            Verdict::Retry {
                after: Duration::from_millis(5),
            },
            Verdict::Release,
            Verdict::Ack,
        ];
        let group: Vec<_> = receipts(9, &[1, 2, 3, 4]).into_iter().zip(verdicts).collect();
        let parts = into_parts(&group);
        assert!(matches!(&parts[..], [
            Part::Ack { dense: false, .. },
            Part::Retry(rows),
            Part::Release { .. },
        ] if rows[0].after == 6));
    }
}
