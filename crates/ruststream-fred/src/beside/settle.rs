//! The half of a subscription on a list or a channel that gives receipts back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ruststream::transport::{Settle, Settled, TransportError, Verdict};
use tokio::time::Instant;

use super::delivery::{ItemReceipt, ReceiptKind};
use super::{Beside, Settlement};
use crate::envelope;
use crate::stream::dead_fields;
use crate::stream::time::millis;

/// How many names one `HDEL` bears.
const ACKS: usize = 1_000;

/// Gives receipts back to a list or a channel.
pub struct ItemSettle {
    beside: Arc<Beside>,
    /// The call before failed and may have come through: what is missing now was settled then.
    in_doubt: bool,
    acks: Vec<Bytes>,
}

impl ItemSettle {
    pub(crate) fn new(beside: Arc<Beside>) -> Self {
        Self {
            beside,
            in_doubt: false,
            acks: Vec::new(),
        }
    }

    /// Acks what has commands with it, in one step of the server for each message. What this consumer does not hold any more leaves
    /// nothing behind; what no one holds may be run again where an answer was lost.
    async fn ack_with_commands(&mut self, queued: &mut Vec<(ItemReceipt, Verdict)>) -> Result<usize, TransportError> {
        let mut with = Vec::new();
        for (receipt, _) in queued.iter() {
            if let Some(commands) = &receipt.commands {
                with.push((receipt.name().clone(), commands.clone()));
            }
        }
        if with.is_empty() {
            return Ok(0);
        }
        let late = self.beside.ack_with_commands(&with).await?;
        queued.clear();
        Ok(late)
    }

    /// Acks in one command for many. A name is in the place of the consumer that holds it alone, so a late ack finds nothing.
    async fn ack(&mut self, finished: &mut Vec<(ItemReceipt, Verdict)>) -> Result<usize, TransportError> {
        self.acks.clear();
        for (receipt, verdict) in finished.iter() {
            if let (ReceiptKind::Held(held), Verdict::Ack) = (&receipt.kind, verdict) {
                self.acks.push(held.id().clone());
            }
        }
        let mut missing = 0;
        for part in self.acks.chunks(ACKS) {
            let count = self.beside.ack(part).await?;
            missing += part.len() - usize::try_from(count).unwrap_or(0).min(part.len());
        }
        // What no one holds is gone anyway.
        finished.retain(|(_, verdict)| !matches!(verdict, Verdict::Ack));
        Ok(missing)
    }
}

impl Settle for ItemSettle {
    type Receipt = ItemReceipt;

    async fn settle(&mut self, finished: &mut Vec<(ItemReceipt, Verdict)>) -> Result<Settled, TransportError> {
        let before = finished.len();
        finished.retain(|(receipt, _)| !matches!(&receipt.kind, ReceiptKind::Held(held) if held.is_lost()));
        let mut stale = before - finished.len();
        let in_doubt = std::mem::replace(&mut self.in_doubt, true);
        // A server without memory refuses what stores something; acks free memory, and wait for nothing that was refused.
        let mut queued: Vec<_> = finished.extract_if(.., has_commands).collect();
        let acked = self.ack(finished).await;
        let ran = if acked.is_ok() {
            self.ack_with_commands(&mut queued).await
        } else {
            Ok(0)
        };
        let rest = if acked.is_ok() && !finished.is_empty() {
            let settlements: Vec<Settlement> = finished.iter().map(settlement).collect();
            let mut done = 0;
            let settled = self.beside.settle(&settlements, |count| done += count).await;
            finished.drain(..done);
            settled
        } else {
            Ok(0)
        };
        finished.append(&mut queued);
        let late = acked? + ran? + rest?;
        self.in_doubt = false;
        if !in_doubt {
            stale += late;
        }
        Ok(Settled { stale })
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        let held = self.beside.book.held();
        if held.is_empty() {
            return Ok(());
        }
        let asked = Instant::now();
        let names: Vec<Bytes> = held.iter().map(|entry| entry.id.clone()).collect();
        let missing = self.beside.renew(&names).await?;
        for (position, entry) in held.iter().enumerate() {
            if missing.binary_search(&position).is_err() {
                entry.renewed_at(asked);
            } else if entry.lose() {
                tracing::warn!(list = %self.beside.name, "a lease was lost: the message was given to another consumer");
                lost.push(entry.lease_id);
            }
        }
        Ok(())
    }

    async fn close(self) -> Result<(), TransportError> {
        Ok(self.beside.leave().await?)
    }
}

impl fmt::Debug for ItemSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemSettle")
            .field("name", &self.beside.name)
            .finish_non_exhaustive()
    }
}

/// An ack whose handler queued commands to run with it.
fn has_commands((receipt, verdict): &mut (ItemReceipt, Verdict)) -> bool {
    matches!((&receipt.commands, verdict), (Some(commands), Verdict::Ack) if !commands.is_empty())
}

fn settlement((receipt, verdict): &(ItemReceipt, Verdict)) -> Settlement {
    let (what, number, more) = match verdict {
        Verdict::Retry { after } => ("retry", millis(*after), Bytes::new()),
        Verdict::Return { attempts } => ("return", i64::from(*attempts), Bytes::new()),
        Verdict::DeadLetter(letter) => ("dead", 0, envelope::block(&dead_fields(letter))),
        // A verdict that this version does not know lets the message be handed out again.
        _ => ("release", 0, Bytes::new()),
    };
    let (name, value) = match &receipt.kind {
        ReceiptKind::Held(held) => (held.id().clone(), None),
        ReceiptKind::Given { name, value } => (name.clone(), Some(value.clone())),
    };
    Settlement {
        name,
        value,
        what,
        number,
        more,
    }
}

/// Gives back what was taken and not handed out.
pub(crate) fn released(receipt: ItemReceipt) -> Settlement {
    settlement(&(receipt, Verdict::Release))
}
