//! What goes wrong when deliveries are given back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ruststream::memory::{MemoryReceipt, MemorySettle};
use ruststream::transport::{Settle, Settled, TransportError, Verdict};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Flaw, Shared};

pub(crate) struct BrokenSettle {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: Arc<Mutex<MemorySettle>>,
    pub(super) waiting: Vec<JoinHandle<()>>,
    /// Handed out and not settled.
    pub(super) in_hand: Arc<watch::Sender<usize>>,
}

impl BrokenSettle {
    /// The verdict that the broker gets to see; `None` where it sees none.
    fn spoiled(&self, verdict: Verdict) -> Option<Verdict> {
        const AT_ONCE: Verdict = Verdict::Retry { after: Duration::ZERO };
        Some(match (self.shared.flaw, verdict) {
            (Flaw::ForgetsAcks, Verdict::Ack) => return None,
            (Flaw::RedeliversWhatWasAcked, Verdict::Ack) => Verdict::Retry {
                after: Duration::from_millis(200),
            },
            (Flaw::CountsReleases, Verdict::Release) | (Flaw::RetriesAtOnce, Verdict::Retry { .. }) => AT_ONCE,
            (Flaw::PutsReleasedBehind, Verdict::Release) => {
                self.shared.released.fetch_add(1, Ordering::Relaxed);
                AT_ONCE
            }
            (Flaw::LetsLateAcksSettle, Verdict::Retry { .. }) if self.shared.acked_late.load(Ordering::Relaxed) => {
                Verdict::Ack
            }
            (Flaw::AcksRetries, Verdict::Retry { .. }) | (Flaw::AcksDeadLetters, Verdict::DeadLetter(_)) => {
                Verdict::Ack
            }
            // Not at once: an app would give it up again at once, and under a paused clock that never ends.
            (Flaw::RetriesDeadLetters, Verdict::DeadLetter(_)) => Verdict::Retry {
                after: Duration::from_millis(50),
            },
            (Flaw::RetriesLate, Verdict::Retry { after }) if !after.is_zero() => Verdict::Retry {
                after: after + Duration::from_secs(1),
            },
            (_, verdict) => verdict,
        })
    }
}

impl Settle for BrokenSettle {
    type Receipt = Option<MemoryReceipt>;

    async fn settle(
        &mut self,
        finished: &mut Vec<(Option<MemoryReceipt>, Verdict)>,
    ) -> Result<Settled, TransportError> {
        let first = finished.first().map(|(_, verdict)| verdict.clone());
        let mut inner = Vec::new();
        self.in_hand
            .send_modify(|in_hand| *in_hand = in_hand.saturating_sub(finished.len()));
        if self.shared.has(Flaw::SettlesSixtyFourAtOnce) {
            finished.truncate(64);
        }
        for (receipt, mut verdict) in finished.drain(..) {
            if self.shared.has(Flaw::GivesAllTheFirstVerdict) {
                verdict = first.clone().unwrap_or(verdict);
            }
            let (Some(receipt), Some(verdict)) = (receipt, self.spoiled(verdict)) else {
                continue;
            };
            match verdict {
                Verdict::Retry { after } if !after.is_zero() && self.shared.has(Flaw::KeepsDelaysInMemory) => {
                    let settle = Arc::clone(&self.inner);
                    self.waiting.push(tokio::spawn(async move {
                        sleep(after).await;
                        let now = Verdict::Retry { after: Duration::ZERO };
                        let _ = settle.lock().await.settle(&mut vec![(receipt, now)]).await;
                    }));
                }
                Verdict::Release if self.shared.has(Flaw::ReleasesLate) => {
                    let settle = Arc::clone(&self.inner);
                    self.waiting.push(tokio::spawn(async move {
                        sleep(Duration::from_secs(2)).await;
                        let _ = settle.lock().await.settle(&mut vec![(receipt, Verdict::Release)]).await;
                    }));
                }
                verdict => inner.push((receipt, verdict)),
            }
        }
        let mut settled = self.inner.lock().await.settle(&mut inner).await?;
        if settled.stale > 0 {
            self.shared.acked_late.store(true, Ordering::Relaxed);
        }
        if self.shared.has(Flaw::DoesNotCountStale) {
            settled.stale = 0;
        }
        Ok(settled)
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        match self.shared.flaw {
            Flaw::DoesNotRenew => Ok(()),
            Flaw::HidesLostLeases => self.inner.lock().await.renew(&mut Vec::new()).await,
            Flaw::ReportsHeldLeasesAsLost => {
                lost.push(7);
                self.inner.lock().await.renew(lost).await
            }
            _ => self.inner.lock().await.renew(lost).await,
        }
    }
}

impl Drop for BrokenSettle {
    fn drop(&mut self) {
        for task in &self.waiting {
            task.abort();
        }
    }
}
