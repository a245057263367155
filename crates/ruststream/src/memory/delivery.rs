//! A message, and the delivery that lends it.

use std::any::Any;
use std::sync::Arc;
use std::time::SystemTime;

#[cfg(feature = "testing")]
use crate::message::TransportOptions;
use crate::message::{HeaderMap, Outgoing};
use crate::transport::Delivery;

/// The largest payload whose buffer stays with its slot for the next message.
const KEPT_BUFFER: usize = 2048;

/// A message as it stands in a queue. Its place and its buffers serve one message after the other.
pub(super) struct Message {
    pub(super) payload: Vec<u8>,
    pub(super) headers: HeaderMap,
    pub(super) has_key: bool,
    pub(super) key: Vec<u8>,
    pub(super) published_at: SystemTime,
    pub(super) origin: Origin,
    /// What stands in for the origin.
    #[cfg(feature = "testing")]
    fields: Option<StandInFields>,
}

/// What another transport's deliveries would answer for their fields, set on a message of an app that is tested without its server.
#[cfg(feature = "testing")]
#[derive(Clone)]
pub(crate) struct StandInFields(pub(crate) Arc<dyn Any + Send + Sync>);

#[cfg(feature = "testing")]
impl TransportOptions for StandInFields {}

#[cfg(feature = "testing")]
impl PartialEq for StandInFields {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(feature = "testing")]
impl Eq for StandInFields {}

#[cfg(feature = "testing")]
impl std::fmt::Debug for StandInFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandInFields").finish_non_exhaustive()
    }
}

impl Message {
    pub(super) fn new(outgoing: &Outgoing<'_>, destination: &Arc<str>, published_at: SystemTime) -> Self {
        Self {
            payload: outgoing.payload().to_vec(),
            headers: outgoing.headers().clone(),
            has_key: outgoing.key().is_some(),
            key: outgoing.key().unwrap_or_default().to_vec(),
            published_at,
            origin: Origin {
                destination: Arc::clone(destination),
            },
            #[cfg(feature = "testing")]
            fields: outgoing.options::<StandInFields>().cloned(),
        }
    }

    /// Becomes another message, in the same buffers.
    #[inline]
    pub(super) fn refill(&mut self, outgoing: &Outgoing<'_>, destination: &Arc<str>, published_at: SystemTime) {
        self.payload.clear();
        self.payload.extend_from_slice(outgoing.payload());
        if !(self.headers.is_empty() && outgoing.headers().is_empty()) {
            self.headers.clone_from(outgoing.headers());
        }
        self.has_key = false;
        if let Some(key) = outgoing.key() {
            self.has_key = true;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.published_at = published_at;
        #[cfg(feature = "testing")]
        if self.fields.is_some() || !outgoing.option_set().is_empty() {
            self.fields = outgoing.options::<StandInFields>().cloned();
        }
        if !Arc::ptr_eq(&self.origin.destination, destination) {
            self.origin.destination = Arc::clone(destination);
        }
    }

    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.has_key.then_some(&self.key[..])
    }

    /// Whether its buffers are too large to be kept for the next message.
    #[inline]
    pub(super) fn is_heavy(&self) -> bool {
        self.payload.capacity() > KEPT_BUFFER || self.key.capacity() > KEPT_BUFFER || self.headers.size() > KEPT_BUFFER
    }
}

/// Where a delivery of the in-process broker came from: what [`Delivery::fields`] answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub(super) destination: Arc<str>,
}

impl Origin {
    /// The name that the message was published to; on a pattern subscription it is one of many.
    pub fn destination(&self) -> &str {
        &self.destination
    }
}

/// One message in hand, from a [`MemoryBroker`](super::MemoryBroker).
pub struct MemoryDelivery {
    pub(super) message: Arc<Message>,
    pub(super) receipt: MemoryReceipt,
    pub(super) attempt: u32,
    /// Not zero where the delivery before was never settled. No `bool`: the compiler would tell `None` from a delivery by it, and copy
    /// each delivery in pieces around it, which is 18 instructions a message.
    pub(super) unfinished: u32,
}

/// What settles a [`MemoryDelivery`]: a slot of its queue, and which use of the slot is meant.
#[derive(Debug)]
pub struct MemoryReceipt {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl MemoryReceipt {
    pub(super) fn lease_id(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

impl Delivery for MemoryDelivery {
    type Receipt = MemoryReceipt;

    #[inline]
    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    #[inline]
    fn headers(&self) -> &HeaderMap {
        &self.message.headers
    }

    #[inline]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn is_unfinished(&self) -> bool {
        self.unfinished != 0
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.message.key()
    }

    fn published_at(&self) -> Option<SystemTime> {
        Some(self.message.published_at)
    }

    fn lease_id(&self) -> u64 {
        self.receipt.lease_id()
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        #[cfg(feature = "testing")]
        if let Some(fields) = &self.message.fields {
            return &*fields.0;
        }
        &self.message.origin
    }

    #[inline]
    fn into_receipt(self) -> MemoryReceipt {
        self.receipt
    }
}

impl std::fmt::Debug for MemoryDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDelivery")
            .field("destination", &self.message.origin.destination)
            .field("payload_bytes", &self.message.payload.len())
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
