//! An entry in hand, and what is left of it when it was handled.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use ruststream::message::HeaderMap;
use ruststream::transport::Delivery;

use super::EntryId;
use crate::commands::RedisCommands;
use crate::lease::Held;

/// A message in hand.
pub struct StreamDelivery {
    pub(crate) payload: Bytes,
    pub(crate) headers: HeaderMap,
    pub(crate) attempt: u32,
    pub(crate) unfinished: bool,
    pub(crate) entry: StreamEntry,
    pub(crate) held: Held,
}

/// What a stream knows of a delivery besides its message: lent through [`Delivery::fields`], where extractors find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    id: EntryId,
    reader: Arc<StreamReader>,
    commands: Option<RedisCommands>,
}

/// One consumer of a stream.
#[derive(Debug)]
pub(crate) struct StreamReader {
    pub(crate) stream: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) name: String,
    /// How many entries its group has yet to read; less than 0 where that is not known.
    pub(crate) lag: AtomicI64,
}

impl StreamReader {
    pub(crate) fn note_lag(&self, lag: i64) {
        self.lag.store(lag, Ordering::Relaxed);
    }
}

/// A consumer has a name of its own.
impl PartialEq for StreamReader {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for StreamReader {}

impl StreamEntry {
    pub(crate) fn new(id: EntryId, reader: Arc<StreamReader>, commands: Option<RedisCommands>) -> Self {
        Self { id, reader, commands }
    }

    /// The id of the entry.
    pub fn id(&self) -> EntryId {
        self.id
    }

    /// The key of the stream.
    pub fn stream(&self) -> &str {
        &self.reader.stream
    }

    /// The consumer group that read it.
    pub fn group(&self) -> &str {
        &self.reader.group
    }

    /// Where the handler queues commands of its own, if its source [says so](crate::RedisStream::pipeline).
    pub fn commands(&self) -> Option<&RedisCommands> {
        self.commands.as_ref()
    }

    /// How many entries of the stream its group had yet to read when the server was last asked: about a second ago, or a quarter of the
    /// lease where that is less. `None` where the server cannot tell, as after entries were deleted in between.
    pub fn lag(&self) -> Option<u64> {
        u64::try_from(self.reader.lag.load(Ordering::Relaxed)).ok()
    }

    /// The name of the consumer, unique to the subscription.
    pub fn consumer(&self) -> &str {
        &self.reader.name
    }
}

impl Delivery for StreamDelivery {
    type Receipt = StreamReceipt;

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    fn published_at(&self) -> Option<SystemTime> {
        self.entry.id().time()
    }

    fn lease_id(&self) -> u64 {
        self.held.lease_id()
    }

    fn fields(&self) -> &(dyn Any + Send + Sync) {
        &self.entry
    }

    fn attempt_failed(&mut self) {
        self.entry.commands = self.entry.commands.as_ref().map(RedisCommands::anew);
    }

    fn into_receipt(self) -> StreamReceipt {
        StreamReceipt {
            held: self.held,
            commands: self.entry.commands,
        }
    }
}

impl fmt::Debug for StreamDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamDelivery")
            .field("entry", &self.entry)
            .field("attempt", &self.attempt)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// What is left of a delivery: the right to settle its entry, while no one else has it.
pub struct StreamReceipt {
    pub(crate) held: Held,
    pub(crate) commands: Option<RedisCommands>,
}

impl fmt::Debug for StreamReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReceipt")
            .field("id", self.held.id())
            .finish_non_exhaustive()
    }
}
