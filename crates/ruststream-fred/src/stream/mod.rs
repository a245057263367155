//! Streams read by consumer groups.
//!
//! One subscription is one consumer of its group, under a name of its own. New entries come by `XREADGROUP`, many a read, on a link
//! of its own. A retry is an entry moved to a second group of the stream, `<group>:retries`, which nobody reads: it is pending
//! there, its bytes where they were and safe from trimming, and a sorted set says when it is due. So nothing is copied, other groups of
//! the stream see nothing of it, and what is pending in the first group is in someone's hands.

mod delivery;
mod entries;
mod fetch;
mod settle;
mod shared;
mod source;
pub(crate) mod time;

use std::sync::Arc;

pub use delivery::{StreamDelivery, StreamEntry, StreamReceipt};
pub use fetch::StreamFetch;
pub use settle::StreamSettle;
pub(crate) use settle::dead_fields;
pub use source::{RedisStream, Retention, Start};
pub use time::{EntryId, InvalidEntryId};

use crate::connection::RedisConnection;
use crate::error::Failure;
use shared::Shared;

pub(crate) async fn open(
    source: &RedisStream,
    connection: &RedisConnection,
) -> Result<(StreamFetch, StreamSettle), Failure> {
    let shared = Arc::new(Shared::new(source, connection));
    let position = shared.make_groups(None).await?;
    Ok((
        StreamFetch::new(Arc::clone(&shared), position),
        StreamSettle::new(shared),
    ))
}
