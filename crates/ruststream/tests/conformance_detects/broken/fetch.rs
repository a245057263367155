//! What goes wrong on the way out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ruststream::memory::{MemoryDelivery, MemoryFetch, MemoryReceipt, MemorySettle};
use ruststream::message::HeaderMap;
use ruststream::transport::{Delivery, ErrorKind, Fetch, Settle, TransportError, Verdict};
use tokio::sync::Mutex;

use super::{Flaw, Shared};

pub(crate) struct BrokenFetch {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: MemoryFetch,
    pub(super) settle: Arc<Mutex<MemorySettle>>,
    pub(super) hoard: VecDeque<MemoryDelivery>,
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
