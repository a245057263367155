//! Which messages keep their order.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::codec::Codec;
use crate::message::Incoming;

type LaneOf = Arc<dyn Fn(&Incoming<'_>) -> Option<u64> + Send + Sync>;

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
}

impl OrderBy {
    /// By the key that the publisher set.
    pub fn key() -> Self {
        Self::hashed(|incoming, hasher| incoming.key().map(|key| hasher.hash_one(key)))
    }

    /// By the first value of a header.
    pub fn header(name: &'static str) -> Self {
        Self::hashed(move |incoming, hasher| incoming.headers().get(name).map(|value| hasher.hash_one(value)))
    }

    /// By what `key` takes from the message, which is decoded (as JSON) once more for it. A message that does not decode has
    /// no key.
    pub fn message<T: DeserializeOwned, K: Hash>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self::hashed(move |incoming, hasher| {
            let message = Codec::Json.decode::<T>(incoming.payload()).ok()?;
            Some(hasher.hash_one(key(&message)))
        })
    }

    fn hashed(hash: impl Fn(&Incoming<'_>, &RandomState) -> Option<u64> + Send + Sync + 'static) -> Self {
        let hasher = RandomState::new();
        Self {
            lane_of: Arc::new(move |incoming| hash(incoming, &hasher)),
        }
    }

    /// The lane of a message. Two keys may share one, which costs them their independence but no order.
    pub(crate) fn lane_of(&self, incoming: &Incoming<'_>) -> Option<NonZeroU64> {
        (self.lane_of)(incoming).map(|hash| NonZeroU64::MIN | hash)
    }
}

impl fmt::Debug for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderBy").finish_non_exhaustive()
    }
}
