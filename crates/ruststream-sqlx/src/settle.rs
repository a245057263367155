//! The half of a subscription that gives receipts back.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use ruststream::transport::{DeadLetter, DeadReason, ErrorKind};
use ruststream::transport::{Settle, Settled, TransportError, Verdict};

use crate::clock::millis;
use crate::engine::Engine;
use crate::guard::Guard;
use crate::lease::{Book, Chunk, Held, lease_id};
use crate::operation::{Answered, NewRow, Operation, Part, Renewal, RetryRow, Settlement};
use crate::table::{OpenTable, TableAnswer};
use crate::terms::Terms;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::transaction::Slot;

/// How often a message is handed out whose transaction does not commit, before it becomes a dead letter.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const COMMITS: u32 = 10;

/// What is left of a delivery: the right to settle its row, while its lease lasts.
pub struct InboxReceipt {
    pub(crate) held: Held,
    /// To be stored by its ack.
    pub(crate) replies: Option<Arc<[NewRow]>>,
    /// The name of the lock that is taken for it.
    pub(crate) lock: Option<String>,
    /// How often the message was handed out.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        allow(dead_code, reason = "of servers alone")
    )]
    pub(crate) attempt: u32,
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
    terms: Arc<Terms>,
    book: Book,
    guard: Guard,
}

impl InboxSettle {
    pub(crate) fn new(engine: Engine, terms: Arc<Terms>, book: Book, guard: Guard) -> Self {
        Self {
            engine,
            terms,
            book,
            guard,
        }
    }
}

impl Settle for InboxSettle {
    type Receipt = InboxReceipt;

    async fn settle(&mut self, finished: &mut Vec<(InboxReceipt, Verdict)>) -> Result<Settled, TransportError> {
        if self.terms.singly {
            // Each by a statement of its own; what was not handled goes back together, so that a service ends in time.
            let mut settled = Settled::default();
            let not_handled = |verdict: &Verdict| matches!(verdict, Verdict::Release | Verdict::Return { .. });
            let mut back: Vec<_> = finished.extract_if(.., |(_, verdict)| not_handled(verdict)).collect();
            let released = self.settle_group(&mut back).await;
            finished.append(&mut back);
            settled.stale += released?;
            let mut rest = std::mem::take(finished).into_iter();
            while let Some(one) = rest.next() {
                let mut one = vec![one];
                match self.settle_group(&mut one).await {
                    Ok(stale) => settled.stale += stale,
                    Err(error) => {
                        finished.extend(one);
                        finished.extend(rest);
                        return Err(error);
                    }
                }
            }
            return Ok(settled);
        }
        let stale = self.settle_group(finished).await?;
        Ok(Settled { stale })
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        futures_util::future::join_all(self.book.guards().iter().map(|guard| guard.look())).await;
        let rows = self.book.held();
        if rows.is_empty() {
            return Ok(());
        }
        if let Guard::Names(_, names) = &self.guard
            && !names.look().await
        {
            tracing::warn!(queue = %self.terms.queue, "the locks of messages in hand were lost with their connection");
            let gone = rows.iter().filter(|(id, token)| self.book.lose(*id, *token));
            lost.extend(gone.map(|(id, token)| lease_id(*id, *token)));
            return Ok(());
        }
        let lease = self.terms.lease;
        let missing = match &self.terms.table {
            Some(table) => table.renew(&self.engine, rows, lease).await?,
            None => {
                self.engine
                    .ask(|reply| Operation::Renew(Renewal { rows, lease, reply }))
                    .await?
            }
        };
        for row in missing {
            // Settled while the renewal was on its way: nothing was lost.
            if !self.book.lose(row.id, row.token) {
                continue;
            }
            if row.gone {
                tracing::warn!(queue = %self.terms.queue, id = row.id, "a message is gone: its row was deleted while it was handled");
            } else {
                tracing::warn!(queue = %self.terms.queue, id = row.id, "a lease was lost: the message was given to someone else");
            }
            lost.push(lease_id(row.id, row.token));
        }
        Ok(())
    }
}

impl fmt::Debug for InboxSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxSettle")
            .field("queue", &self.terms.queue)
            .finish_non_exhaustive()
    }
}

impl InboxSettle {
    /// Settles receipts, and answers how many were stale; what is left did not come through.
    async fn settle_group(&mut self, finished: &mut Vec<(InboxReceipt, Verdict)>) -> Result<usize, TransportError> {
        if finished.is_empty() {
            return Ok(0);
        }
        let mut locks: Vec<((i64, i64), String)> = Vec::new();
        for (receipt, _) in finished.iter_mut() {
            if let Some(lock) = &receipt.lock {
                locks.push((receipt.row(), lock.clone()));
            }
        }
        let done = self.settle_all(finished).await;
        locks.retain(|(row, _)| !finished.iter().any(|(receipt, _)| receipt.row() == *row));
        if let Guard::Names(_, names) = &self.guard
            && !locks.is_empty()
        {
            names.unlock(locks.into_iter().map(|(_, name)| name).collect()).await;
        }
        done
    }

    async fn settle_all(&mut self, finished: &mut Vec<(InboxReceipt, Verdict)>) -> Result<usize, TransportError> {
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        let mut stale = end_transactions(finished, &self.terms).await;
        #[cfg(not(any(feature = "postgres", feature = "mysql")))]
        let mut stale = 0;
        stale += self.settle_locked(finished).await;
        if finished.is_empty() {
            return Ok(stale);
        }
        let parts = into_parts(finished, self.terms.keep);
        if let Some(table) = &self.terms.table {
            return self.settle_in_table(table, parts, finished).await;
        }
        let queue = Arc::clone(&self.terms.queue);
        let frees = self.terms.choice.fifo;
        let settlement = |reply| {
            Operation::Settle(Settlement {
                queue,
                parts,
                frees,
                reply: Some(reply),
            })
        };
        let answer = self.engine.ask(settlement).await?;
        let Some(failure) = answer.failure else {
            finished.clear();
            return Ok(stale + answer.stale);
        };
        let failed: HashSet<(i64, i64)> = answer.failed.into_iter().collect();
        finished.retain(|(receipt, _)| failed.contains(&receipt.row()));
        Err(failure.into())
    }

    /// Settles rows of a table of the user's own. Where one is refused, the others come through by themselves.
    async fn settle_in_table(
        &self,
        table: &OpenTable,
        parts: Vec<Part>,
        finished: &mut Vec<(InboxReceipt, Verdict)>,
    ) -> Result<usize, TransportError> {
        let work = table.settlement(&parts);
        let together = self.engine.ask(|reply| Operation::Table(work, reply)).await;
        let mut stale = 0;
        match together {
            Ok(answer) => {
                stale = late(finished.len(), &answer);
                table.forget(finished.drain(..).map(|(receipt, _)| receipt.held.id()));
            }
            Err(failure) if failure.lost || finished.len() == 1 => return Err(failure.into()),
            Err(_) => {
                let mut refused = None;
                let mut left = Vec::new();
                for pair in finished.drain(..) {
                    let one = [pair];
                    let work = table.settlement(&into_parts(&one, self.terms.keep));
                    let [pair] = one;
                    match self.engine.ask(|reply| Operation::Table(work, reply)).await {
                        Ok(answer) => {
                            stale += late(1, &answer);
                            table.forget(std::iter::once(pair.0.held.id()));
                        }
                        Err(failure) => {
                            refused.get_or_insert(failure);
                            left.push(pair);
                        }
                    }
                }
                finished.extend(left);
                if let Some(failure) = refused {
                    return Err(failure.into());
                }
            }
        }
        self.engine.tell_tables();
        Ok(stale)
    }

    /// Settles what is locked, in the transactions that have it locked. What fails there is left: it is settled by its lease.
    async fn settle_locked(&self, finished: &mut Vec<(InboxReceipt, Verdict)>) -> usize {
        let mut groups: Vec<Vec<(InboxReceipt, Verdict)>> = Vec::new();
        for pair in finished.extract_if(.., |(receipt, _)| receipt.held.is_locked()) {
            let token = pair.0.held.chunk().token;
            match groups.iter_mut().find(|group| group[0].0.held.chunk().token == token) {
                Some(group) => group.push(pair),
                None => groups.push(vec![pair]),
            }
        }
        let settling = groups.iter().map(async |group| {
            let chunk = group[0].0.held.chunk();
            let mut left = chunk.held();
            left.retain(|row| !group.iter().any(|(receipt, _)| receipt.row() == *row));
            let parts = into_parts(group, self.terms.keep);
            chunk.guard.as_ref()?.settle(parts, left).await.ok()
        });
        let settled = futures_util::future::join_all(settling).await;
        let mut stale = 0;
        let mut replied: Vec<Arc<str>> = Vec::new();
        for (group, settled) in groups.into_iter().zip(settled) {
            let Some(late) = settled else {
                finished.extend(group);
                continue;
            };
            stale += late;
            let its = group.iter().filter_map(|(receipt, _)| receipt.replies.as_ref());
            replied.extend(its.flat_map(|rows| rows.iter().map(|row| Arc::clone(&row.queue))));
        }
        if !replied.is_empty() {
            replied.sort_unstable();
            replied.dedup();
            self.engine.notify(Operation::Tell { queues: replied });
        }
        stale
    }
}

/// How many of so many rows belonged to someone else.
fn late(rows: usize, answer: &TableAnswer) -> usize {
    match answer {
        TableAnswer::Changed(changed) => rows.saturating_sub(usize::try_from(*changed).unwrap_or(usize::MAX)),
        _ => 0,
    }
}

impl InboxReceipt {
    /// Id and token.
    fn row(&self) -> (i64, i64) {
        (self.held.id(), self.held.chunk().token)
    }
}

/// Ends the transactions of handlers, all at once: acks commit, each with its row; what else there is to say is said once its
/// transaction is undone. Answers how many came too late.
#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn end_transactions(finished: &mut Vec<(InboxReceipt, Verdict)>, terms: &Terms) -> usize {
    let mut with = finished
        .extract_if(.., |(receipt, _)| receipt.slot.is_some())
        .collect::<Vec<_>>();
    let endings = with.iter_mut().map(async |(receipt, verdict)| {
        let slot = receipt.slot.take()?;
        if *verdict != Verdict::Ack {
            slot.rollback().await;
            return None;
        }
        let (id, token) = receipt.row();
        match slot.commit(id, token, receipt.replies.clone()).await {
            Ok(held) => Some(held),
            Err(failure) => {
                // If it did commit after all, the row is gone, and the retry finds nothing.
                let error = TransportError::from(failure);
                let attempts = receipt.attempt;
                // A reply goes with its ack alone.
                receipt.replies = None;
                // A server that is away says nothing of the transaction.
                let away = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout);
                if attempts >= COMMITS && !away {
                    tracing::error!(id, attempts, %error, "a transaction does not commit: its message becomes a dead letter");
                    *verdict = Verdict::DeadLetter(Box::new(DeadLetter {
                        reason: DeadReason::AttemptsExhausted,
                        error: format!("its transaction does not commit: {error}"),
                        attempts,
                        source: terms.queue.to_string(),
                        at: std::time::SystemTime::now(),
                    }));
                    return None;
                }
                tracing::warn!(id, %error, "a transaction did not commit: its message is handled again");
                let after = Duration::from_millis(100 << attempts.min(9));
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
fn into_parts(finished: &[(InboxReceipt, Verdict)], keep: Option<i64>) -> Vec<Part> {
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
            Verdict::Ack if receipt.replies.is_some() => parts.push(Part::Answer(Answered {
                id,
                token,
                keep,
                replies: receipt.replies.clone().unwrap_or_default(),
            })),
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
    if let Some(keep) = keep {
        for part in &mut parts {
            if let Part::Ack { token, ids, .. } = part {
                *part = Part::Keep {
                    token: *token,
                    ids: std::mem::take(ids),
                    keep,
                };
            }
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
        let chunk = Chunk::new(token, ids.into(), None);
        (0..ids.len())
            .map(|index| InboxReceipt {
                held: Held::new(Arc::clone(&chunk), index),
                replies: None,
                lock: None,
                attempt: 1,
                #[cfg(any(feature = "postgres", feature = "mysql"))]
                slot: None,
            })
            .collect()
    }

    #[test]
    fn rows_of_one_claim_share_a_part() {
        let acked: Vec<_> = receipts(9, &[1, 2, 3]).into_iter().map(|r| (r, Verdict::Ack)).collect();
        let parts = into_parts(&acked, None);
        assert!(matches!(&parts[..], [Part::Ack { token: 9, ids, dense: true }] if *ids == [1, 2, 3]));
    }

    #[test]
    fn a_gap_is_never_spanned() {
        let mut some = receipts(9, &[1, 2, 3]);
        let kept = some.remove(1);
        let acked: Vec<_> = some.into_iter().map(|r| (r, Verdict::Ack)).collect();
        let parts = into_parts(&acked, None);
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
        let parts = into_parts(&group, None);
        assert!(matches!(&parts[..], [
            Part::Ack { dense: false, .. },
            Part::Retry(rows),
            Part::Release { .. },
        ] if rows[0].after == 6));
    }
}
