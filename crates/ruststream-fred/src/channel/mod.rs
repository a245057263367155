//! Channels: what is published reaches whoever listens, and no one else.

mod fetch;
mod glob;

use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Audience, Capabilities, DeadLetters, Source, TransportError};

pub use fetch::ChannelFetch;

use crate::beside::{Beside, ItemSettle, Kind};
use crate::connection::RedisConnection;
use crate::names::check_name;
use crate::walk::Walk;

/// How many messages wait for a slow consumer unless another number is set.
const DEFAULT_BUFFER: usize = 16 * 1024;

/// How often to look for what is due, at the latest: four times this.
const LEASE: Duration = Duration::from_secs(4);

/// A channel, or channels whose names match a pattern.
///
/// Each subscription gets what is published while it listens. A message that is retried or delayed is kept in the server, and comes
/// to one of the subscriptions on the same name; a delayed one is published when it is due, by whoever listens to that channel.
///
/// # Slow consumers
///
/// Up to [`buffer`](Self::buffer) messages wait in this process. When more come, the oldest are dropped: how many is told in the log, at
/// most once a second, and counted by [`RedisConnection::dropped`].
///
/// # Examples
///
/// ```
/// use ruststream::transport::Source;
/// use ruststream_fred::RedisChannel;
///
/// assert!(RedisChannel::new("news").check().is_ok());
/// assert!(RedisChannel::pattern("news.*").buffer(100_000).check().is_ok());
/// assert!(RedisChannel::sharded("").check().is_err());
/// ```
#[derive(Debug, Clone)]
pub struct RedisChannel {
    name: Arc<str>,
    kind: Kind,
    buffer: usize,
    has_commands: bool,
}

impl RedisChannel {
    /// The channel of this name (`SUBSCRIBE`). On a cluster every node hears of every message.
    pub fn new(name: &str) -> Self {
        Self::of(name, Kind::Channel)
    }

    /// The channels whose names match a glob pattern (`PSUBSCRIBE`): `news.*`.
    pub fn pattern(pattern: &str) -> Self {
        Self::of(pattern, Kind::Pattern)
    }

    /// The sharded channel of this name (`SSUBSCRIBE`): on a cluster it lives on the node of its slot. Who publishes has to say
    /// so too.
    pub fn sharded(name: &str) -> Self {
        Self::of(name, Kind::Shard)
    }

    fn of(name: &str, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            buffer: DEFAULT_BUFFER,
            has_commands: false,
        }
    }

    /// Sets how many messages wait for a slow consumer before the oldest are dropped: 16,384 unless set.
    pub fn buffer(mut self, messages: usize) -> Self {
        self.buffer = messages.clamp(1, 1 << 24);
        self
    }

    /// Lets handlers queue [commands of their own](crate::RedisCommands) that are run when their message is acked, in one round trip for
    /// many messages and one step of the server.
    ///
    /// No one holds the messages of a channel: those whose process dies are lost with their commands, and where an answer is lost they may
    /// be run again. On a cluster the keys have to lie in the slot of the channel's name, or of the pattern: give both one hash tag.
    pub fn pipeline(mut self) -> Self {
        self.has_commands = true;
        self
    }

    /// The same as [`pipeline`](Self::pipeline): what each message queued is one step of the server.
    pub fn atomic(self) -> Self {
        self.pipeline()
    }
}

impl Source for RedisChannel {
    type Connection = RedisConnection;
    type Fetch = ChannelFetch;
    type Settle = ItemSettle;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none().with_delay().with_dead_letters().with_attempts()
    }

    fn check(&self) -> Result<(), TransportError> {
        check_name(&self.name)
    }

    fn audience(&self) -> Option<Audience> {
        let each = Audience::each();
        Some(match self.kind {
            Kind::Pattern => each.by_pattern(glob::matches),
            _ => each,
        })
    }

    async fn open(&self, connection: &RedisConnection) -> Result<(ChannelFetch, ItemSettle), TransportError> {
        self.check()?;
        let beside = Arc::new(Beside::new(&self.name, self.kind, LEASE, self.has_commands, connection));
        let dropped = Arc::clone(connection.dropped_count());
        let fetch = ChannelFetch::open(Arc::clone(&beside), self.buffer, dropped).await?;
        Ok((fetch, ItemSettle::new(beside)))
    }

    async fn dead_letters(&self, connection: &RedisConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        Ok(Some(Box::new(Walk::open(connection, self.name()).await?)))
    }
}
