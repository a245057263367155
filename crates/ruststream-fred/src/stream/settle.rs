//! The half of a subscription that gives receipts back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ruststream::message::header;
use ruststream::transport::{DeadLetter, Settle, Settled, TransportError, Verdict};
use tokio::time::Instant;

use super::delivery::StreamReceipt;
use super::shared::{Settlement, Shared, What};
use super::time::since_epoch;
use crate::commands::Mode;
use crate::error::Failure;

/// How many ids one `XACK` bears.
const ACKS: usize = 1_000;

/// Gives receipts back to a stream.
pub struct StreamSettle {
    shared: Arc<Shared>,
    /// The call before failed and may have come through: what is missing now was settled then.
    in_doubt: bool,
    acks: Vec<Bytes>,
}

impl StreamSettle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            in_doubt: false,
            acks: Vec::new(),
        }
    }

    /// Acks what no one else can have, in one command for many.
    ///
    /// `XACK` asks for the group alone. So it serves only while this consumer's claim is younger than the lease; after that a
    /// script asks first whose the entry is.
    async fn ack_fresh(&mut self, finished: &mut Vec<(StreamReceipt, Verdict)>) -> Result<usize, Failure> {
        let now = Instant::now();
        let for_how_long = self.shared.lease * 2 / 3;
        let is_fresh = |receipt: &StreamReceipt, verdict: &Verdict| {
            matches!(verdict, Verdict::Ack) && receipt.held.chunk().is_fresh(now, for_how_long)
        };
        self.acks.clear();
        for (receipt, verdict) in finished.iter() {
            if is_fresh(receipt, verdict) {
                self.acks.push(receipt.held.id().clone());
            }
        }
        let mut missing = 0;
        let mut acked = 0;
        let mut outcome = Ok(());
        for part in self.acks.chunks(ACKS) {
            match self.shared.ack(part).await {
                Ok(count) => {
                    acked += part.len();
                    missing += part.len() - usize::try_from(count).unwrap_or(0).min(part.len());
                }
                Err(failure) => {
                    outcome = Err(failure);
                    break;
                }
            }
        }
        if acked == finished.len() {
            finished.clear();
        } else {
            let mut left = acked;
            finished.retain(|(receipt, verdict)| {
                let done = left > 0 && is_fresh(receipt, verdict);
                left -= usize::from(done);
                !done
            });
        }
        outcome.map(|()| missing)
    }

    /// Acks these, all of which have commands with them. Where someone else may have an entry, or the call before may have come through, the server is
    /// asked: what it does not hold for this consumer is done, or not this consumer's any more.
    async fn ack_with_commands(
        &mut self,
        mode: Mode,
        in_doubt: bool,
        queued: &mut Vec<(StreamReceipt, Verdict)>,
    ) -> Result<usize, Failure> {
        let now = Instant::now();
        let for_how_long = self.shared.lease * 2 / 3;
        let mut with = Vec::new();
        let mut asks = in_doubt || mode == Mode::Atomic;
        for (receipt, _) in queued.iter() {
            if let Some(commands) = &receipt.commands {
                asks |= !receipt.held.chunk().is_fresh(now, for_how_long);
                with.push((receipt.held.id().clone(), commands.clone()));
            }
        }
        if with.is_empty() {
            return Ok(0);
        }
        let late = self.shared.ack_with_commands(asks, &with).await?;
        queued.clear();
        Ok(late)
    }

    /// Settles the rest by script, each entry only if it is still this consumer's.
    async fn settle_rest(&mut self, finished: &mut Vec<(StreamReceipt, Verdict)>) -> Result<usize, Failure> {
        let settlements: Vec<Settlement> = finished
            .iter()
            .map(|(receipt, verdict)| Settlement {
                id: receipt.held.id().clone(),
                what: what(verdict),
            })
            .collect();
        let mut done = 0;
        let settled = self.shared.settle(&settlements, |count| done += count).await;
        finished.drain(..done);
        let settled = settled?;
        self.shared.tell_gone(settled.gone);
        Ok(settled.stale)
    }
}

impl Settle for StreamSettle {
    type Receipt = StreamReceipt;

    async fn settle(&mut self, finished: &mut Vec<(StreamReceipt, Verdict)>) -> Result<Settled, TransportError> {
        let before = finished.len();
        finished.retain(|(receipt, _)| !receipt.held.is_lost());
        let mut stale = before - finished.len();
        let in_doubt = std::mem::replace(&mut self.in_doubt, true);
        let mut count = |missing: usize| {
            if !in_doubt {
                stale += missing;
            }
        };
        // A server without memory refuses what stores something; acks free memory, and wait for nothing that was refused.
        let mut queued: Vec<_> = finished.extract_if(.., has_commands).collect();
        let acked = self.ack_fresh(finished).await;
        let ran = match self.shared.commands {
            Some(mode) if acked.is_ok() => self.ack_with_commands(mode, in_doubt, &mut queued).await,
            _ => Ok(0),
        };
        finished.sort_by_key(|(_, verdict)| !matches!(verdict, Verdict::Ack));
        let rest = if acked.is_ok() && !finished.is_empty() {
            self.settle_rest(finished).await
        } else {
            Ok(0)
        };
        finished.append(&mut queued);
        count(acked?);
        count(ran?);
        count(rest?);
        self.in_doubt = false;
        Ok(Settled { stale })
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        let held = self.shared.book.held();
        if held.is_empty() {
            return Ok(());
        }
        let asked = Instant::now();
        let ids: Vec<Bytes> = held.iter().map(|entry| entry.id.clone()).collect();
        let missing = self.shared.renew(&ids).await?;
        for (position, entry) in held.iter().enumerate() {
            if missing.binary_search(&position).is_err() {
                entry.renewed_at(asked);
            } else if entry.lose() {
                tracing::warn!(
                    stream = %self.shared.stream, group = %self.shared.group,
                    entry = %String::from_utf8_lossy(&entry.id),
                    "a lease was lost: the entry was given to another consumer, or settled by someone else"
                );
                lost.push(entry.lease_id);
            }
        }
        Ok(())
    }

    async fn close(self) -> Result<(), TransportError> {
        Ok(self.shared.leave().await?)
    }
}

impl fmt::Debug for StreamSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSettle")
            .field("stream", &self.shared.stream)
            .field("group", &self.shared.group)
            .finish_non_exhaustive()
    }
}

/// An ack whose handler queued commands to run with it.
fn has_commands((receipt, verdict): &mut (StreamReceipt, Verdict)) -> bool {
    matches!((&receipt.commands, verdict), (Some(commands), Verdict::Ack) if !commands.is_empty())
}

fn what(verdict: &Verdict) -> What {
    match verdict {
        Verdict::Ack => What::Ack,
        Verdict::Retry { after } => What::Retry(*after),
        Verdict::Return { attempts } => What::Return(*attempts),
        Verdict::DeadLetter(letter) => What::Dead(dead_fields(letter)),
        // A verdict that this version does not know lets the message be handed out again.
        _ => What::Release,
    }
}

/// What a dead letter bears besides what it was published with; the same headers as those of every transport.
pub(crate) fn dead_fields(letter: &DeadLetter) -> Vec<(&'static str, String)> {
    vec![
        (header::DEAD_REASON, letter.reason.as_str().to_owned()),
        (header::DEAD_ERROR, letter.error.clone()),
        (header::DEAD_ATTEMPTS, letter.attempts.to_string()),
        (header::DEAD_SOURCE, letter.source.clone()),
        (header::DEAD_AT, since_epoch(letter.at).to_string()),
    ]
}
