//! The halves of a subscription whose form is known when it opens.

use std::any::Any;
use std::fmt;
use std::time::SystemTime;

use ruststream::message::HeaderMap;
use ruststream::transport::{Delivery, Fetch, Settle, Settled, TransportError, Verdict};

use crate::beside::{ItemDelivery, ItemReceipt, ItemSettle};
use crate::channel::ChannelFetch;
use crate::list::ListFetch;
use crate::stream::{StreamDelivery, StreamFetch, StreamReceipt, StreamSettle};

/// Takes deliveries from what a name stands for.
pub struct RedisFetch {
    half: FetchHalf,
}

enum FetchHalf {
    Stream(Box<StreamFetch>, Vec<StreamDelivery>),
    List(Box<ListFetch>, Vec<ItemDelivery>),
    Channel(Box<ChannelFetch>, Vec<ItemDelivery>),
}

/// Gives receipts back to what a name stands for.
pub struct RedisSettle {
    half: SettleHalf,
}

enum SettleHalf {
    Stream(StreamSettle, Vec<(StreamReceipt, Verdict)>),
    Item(ItemSettle, Vec<(ItemReceipt, Verdict)>),
}

/// A message in hand.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisDelivery {
    /// An entry of a stream.
    Stream(StreamDelivery),
    /// A message of a list or a channel.
    Item(ItemDelivery),
}

/// What is left of a delivery.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisReceipt {
    /// Of an entry of a stream.
    Stream(StreamReceipt),
    /// Of a message of a list or a channel.
    Item(ItemReceipt),
}

impl RedisFetch {
    pub(crate) fn stream(fetch: StreamFetch) -> Self {
        Self {
            half: FetchHalf::Stream(Box::new(fetch), Vec::new()),
        }
    }

    pub(crate) fn list(fetch: ListFetch) -> Self {
        Self {
            half: FetchHalf::List(Box::new(fetch), Vec::new()),
        }
    }

    pub(crate) fn channel(fetch: ChannelFetch) -> Self {
        Self {
            half: FetchHalf::Channel(Box::new(fetch), Vec::new()),
        }
    }
}

impl RedisSettle {
    pub(crate) fn stream(settle: StreamSettle) -> Self {
        Self {
            half: SettleHalf::Stream(settle, Vec::new()),
        }
    }

    pub(crate) fn item(settle: ItemSettle) -> Self {
        Self {
            half: SettleHalf::Item(settle, Vec::new()),
        }
    }
}

impl Fetch for RedisFetch {
    type Delivery = RedisDelivery;

    async fn fetch(&mut self, room: usize, into: &mut Vec<RedisDelivery>) -> Result<(), TransportError> {
        // The halves hand out at their end, with nothing awaited after: a dropped call leaves nothing in the buffers.
        match &mut self.half {
            FetchHalf::Stream(fetch, taken) => {
                let fetched = fetch.fetch(room, taken).await;
                into.extend(taken.drain(..).map(RedisDelivery::Stream));
                fetched
            }
            FetchHalf::List(fetch, taken) => {
                let fetched = fetch.fetch(room, taken).await;
                into.extend(taken.drain(..).map(RedisDelivery::Item));
                fetched
            }
            FetchHalf::Channel(fetch, taken) => {
                let fetched = fetch.fetch(room, taken).await;
                into.extend(taken.drain(..).map(RedisDelivery::Item));
                fetched
            }
        }
    }

    async fn recover(&mut self) -> Result<(), TransportError> {
        match &mut self.half {
            FetchHalf::Stream(fetch, _) => fetch.recover().await,
            FetchHalf::List(fetch, _) => fetch.recover().await,
            FetchHalf::Channel(fetch, _) => fetch.recover().await,
        }
    }

    async fn close(self) -> Result<(), TransportError> {
        match self.half {
            FetchHalf::Stream(fetch, _) => fetch.close().await,
            FetchHalf::List(fetch, _) => fetch.close().await,
            FetchHalf::Channel(fetch, _) => fetch.close().await,
        }
    }
}

impl Settle for RedisSettle {
    type Receipt = RedisReceipt;

    async fn settle(&mut self, finished: &mut Vec<(RedisReceipt, Verdict)>) -> Result<Settled, TransportError> {
        // Receipts of another kind belong to another subscription, and settle nothing here.
        match &mut self.half {
            SettleHalf::Stream(settle, own) => {
                own.extend(finished.drain(..).filter_map(|(receipt, verdict)| match receipt {
                    RedisReceipt::Stream(receipt) => Some((receipt, verdict)),
                    RedisReceipt::Item(_) => None,
                }));
                let settled = settle.settle(own).await;
                finished.extend(
                    own.drain(..)
                        .map(|(receipt, verdict)| (RedisReceipt::Stream(receipt), verdict)),
                );
                settled
            }
            SettleHalf::Item(settle, own) => {
                own.extend(finished.drain(..).filter_map(|(receipt, verdict)| match receipt {
                    RedisReceipt::Item(receipt) => Some((receipt, verdict)),
                    RedisReceipt::Stream(_) => None,
                }));
                let settled = settle.settle(own).await;
                finished.extend(
                    own.drain(..)
                        .map(|(receipt, verdict)| (RedisReceipt::Item(receipt), verdict)),
                );
                settled
            }
        }
    }

    async fn renew(&mut self, lost: &mut Vec<u64>) -> Result<(), TransportError> {
        match &mut self.half {
            SettleHalf::Stream(settle, _) => settle.renew(lost).await,
            SettleHalf::Item(settle, _) => settle.renew(lost).await,
        }
    }

    async fn close(self) -> Result<(), TransportError> {
        match self.half {
            SettleHalf::Stream(settle, _) => settle.close().await,
            SettleHalf::Item(settle, _) => settle.close().await,
        }
    }
}

impl Delivery for RedisDelivery {
    type Receipt = RedisReceipt;

    fn payload(&self) -> &[u8] {
        match self {
            Self::Stream(delivery) => delivery.payload(),
            Self::Item(delivery) => delivery.payload(),
        }
    }

    fn headers(&self) -> &HeaderMap {
        match self {
            Self::Stream(delivery) => delivery.headers(),
            Self::Item(delivery) => delivery.headers(),
        }
    }

    fn attempt(&self) -> u32 {
        match self {
            Self::Stream(delivery) => delivery.attempt(),
            Self::Item(delivery) => delivery.attempt(),
        }
    }

    fn is_unfinished(&self) -> bool {
        match self {
            Self::Stream(delivery) => delivery.is_unfinished(),
            Self::Item(delivery) => delivery.is_unfinished(),
        }
    }

    fn published_at(&self) -> Option<SystemTime> {
        match self {
            Self::Stream(delivery) => delivery.published_at(),
            Self::Item(delivery) => delivery.published_at(),
        }
    }

    fn lease_id(&self) -> u64 {
        match self {
            Self::Stream(delivery) => delivery.lease_id(),
            Self::Item(delivery) => delivery.lease_id(),
        }
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        match self {
            Self::Stream(delivery) => delivery.fields(),
            Self::Item(delivery) => delivery.fields(),
        }
    }

    fn attempt_failed(&mut self) {
        match self {
            Self::Stream(delivery) => delivery.attempt_failed(),
            Self::Item(delivery) => delivery.attempt_failed(),
        }
    }

    fn into_receipt(self) -> RedisReceipt {
        match self {
            Self::Stream(delivery) => RedisReceipt::Stream(delivery.into_receipt()),
            Self::Item(delivery) => RedisReceipt::Item(delivery.into_receipt()),
        }
    }
}

impl fmt::Debug for RedisFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.half {
            FetchHalf::Stream(fetch, _) => fetch.fmt(f),
            FetchHalf::List(fetch, _) => fetch.fmt(f),
            FetchHalf::Channel(fetch, _) => fetch.fmt(f),
        }
    }
}

impl fmt::Debug for RedisSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.half {
            SettleHalf::Stream(settle, _) => settle.fmt(f),
            SettleHalf::Item(settle, _) => settle.fmt(f),
        }
    }
}
