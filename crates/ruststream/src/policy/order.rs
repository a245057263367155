//! Which messages keep their order.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::codec::Codec;
use crate::handler::Message;
use crate::message::Incoming;

type LaneOf = Arc<dyn Fn(&Incoming<'_>, &Codec) -> Option<u64> + Send + Sync>;

/// Which messages keep their order among each other: those with the same key.
///
/// Messages of one key are handled one after the other, in the order they were fetched, through retries too. Messages of
/// different keys do not wait for each other, and a message without a key waits for none.
///
/// # Examples
///
/// ```
/// use ruststream::policy::OrderBy;
///
/// let by_customer = OrderBy::header("customer");
/// # let _ = by_customer;
/// ```
#[derive(Clone)]
pub struct OrderBy {
    lane_of: LaneOf,
    /// That of the subscription.
    codec: Codec,
}

impl OrderBy {
    /// By the key that the publisher set.
    pub fn key() -> Self {
        Self::hashed(|incoming, _, hasher| incoming.key().map(|key| hasher.hash_one(key)))
    }

    /// By the first value of a header.
    pub fn header(name: &'static str) -> Self {
        Self::hashed(move |incoming, _, hasher| incoming.headers().get(name).map(|value| hasher.hash_one(value)))
    }

    /// By what `key` takes from the message, which is decoded once more for it, as it is for the handler. A message that does
    /// not decode has no key.
    ///
    /// It is asked before any layer. Where a layer changes payloads ([`ClaimCheck`](crate::layer::ClaimCheck)), order by what is beside the
    /// payload: a key or a header.
    pub fn message<T: for<'a> Message<'a>, K: Hash>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self::hashed(move |incoming, codec, hasher| {
            let message = T::read(*incoming, codec).ok()?;
            Some(hasher.hash_one(key(&message)))
        })
    }

    fn hashed(hash: impl Fn(&Incoming<'_>, &Codec, &RandomState) -> Option<u64> + Send + Sync + 'static) -> Self {
        let hasher = RandomState::new();
        Self {
            lane_of: Arc::new(move |incoming, codec| hash(incoming, codec, &hasher)),
            codec: Codec::default(),
        }
    }

    /// The same, for a subscription that reads by `codec`.
    pub(crate) fn with_codec(mut self, codec: &Codec) -> Self {
        self.codec = codec.clone();
        self
    }

    /// The lane of a message. Two keys may share one, which costs them their independence but no order.
    pub(crate) fn lane_of(&self, incoming: &Incoming<'_>) -> Option<NonZeroU64> {
        (self.lane_of)(incoming, &self.codec).map(|hash| NonZeroU64::MIN | hash)
    }
}

impl fmt::Debug for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderBy").finish_non_exhaustive()
    }
}
