//! What goes wrong on the way out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ruststream::memory::{MemoryDelivery, MemoryFetch, MemoryReceipt, MemorySettle};
use ruststream::message::{HeaderMap, header};
use ruststream::transport::{Delivery, ErrorKind, Fetch, Settle, TransportError, Verdict};
use tokio::sync::{Mutex, watch};

use super::{Flaw, Shared};

pub(crate) struct BrokenFetch {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: MemoryFetch,
    pub(super) settle: Arc<Mutex<MemorySettle>>,
    pub(super) hoard: VecDeque<MemoryDelivery>,
    /// Handed out and not settled.
    pub(super) in_hand: Arc<watch::Sender<usize>>,
    /// A fetch waits, or was dropped while it did.
    pub(super) is_waiting: bool,
}

impl BrokenFetch {
    /// Waits until everything handed out is settled.
    async fn all_settled(&self) {
        let _ = self.in_hand.subscribe().wait_for(|in_hand| *in_hand == 0).await;
    }

    /// Puts back what it took because of one message that it cannot read; true if there is such a message.
    async fn stumbles(&self, taken: &mut Vec<MemoryDelivery>) -> Result<bool, TransportError> {
        let is_odd = |delivery: &MemoryDelivery| {
            let content_type = delivery.headers().get(header::CONTENT_TYPE);
            content_type.is_some_and(|value| std::str::from_utf8(value).is_err())
        };
        if !taken.iter().any(is_odd) {
            return Ok(false);
        }
        let receipts = taken.drain(..).map(|inner| (inner.into_receipt(), Verdict::Release));
        self.settle.lock().await.settle(&mut receipts.collect()).await?;
        Ok(true)
    }
}

impl Fetch for BrokenFetch {
    type Delivery = BrokenDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<BrokenDelivery>) -> Result<(), TransportError> {
        let shared = &self.shared;
        let mut taken = Vec::new();
        match shared.flaw {
            Flaw::ReturnsWithNothing => {
                let fetch = self.inner.fetch(room, &mut taken);
                if let Ok(outcome) = tokio::time::timeout(Duration::from_millis(10), fetch).await {
                    outcome?;
                }
            }
            Flaw::StaysCutOff if shared.was_cut.load(Ordering::Relaxed) => {
                return Err(TransportError::new(ErrorKind::Unavailable, "the link is cut"));
            }
            Flaw::HangsAfterACut if shared.was_cut.load(Ordering::Relaxed) => std::future::pending().await,
            Flaw::HidesACut => {
                while let Err(error) = self.inner.fetch(room, &mut taken).await {
                    if !error.is_transient() {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Flaw::HandsOutOneAtATime => {
                self.all_settled().await;
                self.inner.fetch(1, &mut taken).await?;
            }
            Flaw::WaitsUntilAllIsSettled => {
                self.all_settled().await;
                self.inner.fetch(room, &mut taken).await?;
            }
            Flaw::StumblesOverContentTypes => {
                self.inner.fetch(room, &mut taken).await?;
                if self.stumbles(&mut taken).await? {
                    return Err(TransportError::new(ErrorKind::Unavailable, "a message cannot be read"));
                }
            }
            Flaw::DiesWithADroppedFetch => {
                if std::mem::replace(&mut self.is_waiting, true) {
                    std::future::pending::<()>().await;
                }
                self.inner.fetch(room, &mut taken).await?;
                self.is_waiting = false;
            }
            Flaw::BringsMoreThanThereIsRoomFor => self.inner.fetch(room + 1, &mut taken).await?,
            Flaw::LosesWhatACancelledFetchTook => {
                self.inner.fetch(room, &mut taken).await?;
                tokio::task::yield_now().await;
            }
            Flaw::KeepsWhatItTookAfterClose => {
                if self.hoard.is_empty() {
                    self.inner.fetch(room + 2, &mut taken).await?;
                    self.hoard.extend(taken.drain(..));
                }
                taken.extend(self.hoard.drain(..room.min(self.hoard.len())));
            }
            _ => self.inner.fetch(room, &mut taken).await?,
        }
        if shared.has(Flaw::ReversesWhatItFetches) {
            taken.reverse();
        }
        let attempt = |inner: &MemoryDelivery| match shared.flaw {
            Flaw::ForgetsAttempts => 1,
            Flaw::PutsReleasedBehind => inner.attempt().saturating_sub(shared.released.load(Ordering::Relaxed)),
            _ => inner.attempt(),
        };
        let mut deliveries: Vec<_> = taken
            .into_iter()
            .map(|inner| BrokenDelivery {
                attempt: attempt(&inner),
                lent: None,
                inner: Some(inner),
            })
            .collect();
        if shared.has(Flaw::AcksWhatItHandsOut) {
            let mut finished = Vec::new();
            for delivery in &mut deliveries {
                if let Some(inner) = delivery.inner.take() {
                    let key = inner.key().map(<[u8]>::to_vec);
                    delivery.lent = Some((inner.payload().to_vec(), inner.headers().clone(), key));
                    finished.push((inner.into_receipt(), Verdict::Ack));
                }
            }
            self.settle.lock().await.settle(&mut finished).await?;
        }
        self.in_hand.send_modify(|in_hand| *in_hand += deliveries.len());
        into.append(&mut deliveries);
        Ok(())
    }
}

pub(crate) struct BrokenDelivery {
    /// Absent where it was acked already; then its parts are here.
    inner: Option<MemoryDelivery>,
    lent: Option<(Vec<u8>, HeaderMap, Option<Vec<u8>>)>,
    attempt: u32,
}

impl Delivery for BrokenDelivery {
    type Receipt = Option<MemoryReceipt>;

    fn payload(&self) -> &[u8] {
        match (&self.inner, &self.lent) {
            (Some(inner), _) => inner.payload(),
            (None, lent) => lent.as_ref().map_or(&[], |(payload, ..)| payload),
        }
    }

    fn headers(&self) -> &HeaderMap {
        static NONE: HeaderMap = HeaderMap::new();
        match (&self.inner, &self.lent) {
            (Some(inner), _) => inner.headers(),
            (None, lent) => lent.as_ref().map_or(&NONE, |(_, headers, _)| headers),
        }
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn key(&self) -> Option<&[u8]> {
        match (&self.inner, &self.lent) {
            (Some(inner), _) => inner.key(),
            (None, lent) => lent.as_ref().and_then(|(_, _, key)| key.as_deref()),
        }
    }

    fn lease_id(&self) -> u64 {
        self.inner.as_ref().map_or(0, Delivery::lease_id)
    }

    fn into_receipt(self) -> Option<MemoryReceipt> {
        self.inner.map(Delivery::into_receipt)
    }
}
