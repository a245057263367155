//! What a subscription by name reads, and what a plain name stands for.

use ruststream::transport::{Audience, Capabilities, DeadLetters, Source, TransportError};

use crate::any::{RedisFetch, RedisSettle};
use crate::channel::RedisChannel;
use crate::connection::RedisConnection;
use crate::list::RedisList;
use crate::stream::RedisStream;
use crate::walk::Walk;

/// What a name stands for, where a subscription or a publish says nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// A stream, read by a consumer group.
    #[default]
    Stream,
    /// A list, whose messages are held in the server until they are settled.
    List,
    /// A list, whose messages are gone once they were taken.
    PlainList,
    /// A channel: who listens gets the message, no one else.
    Channel,
    /// A sharded channel.
    ShardedChannel,
}

/// A stream, a list or a channel: what subscriptions by name read. The types it is made of have their settings, and can be given to
/// a subscription as they are.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RedisSource {
    /// A stream.
    Stream(RedisStream),
    /// A list.
    List(RedisList),
    /// A channel, or channels that match.
    Channel(RedisChannel),
}

impl RedisSource {
    pub(crate) fn of(form: Form, name: &str) -> Self {
        match form {
            Form::Stream => RedisStream::new(name).into(),
            Form::List => RedisList::new(name).into(),
            Form::PlainList => RedisList::new(name).at_most_once().into(),
            Form::Channel => RedisChannel::new(name).into(),
            Form::ShardedChannel => RedisChannel::sharded(name).into(),
        }
    }
}

impl From<RedisStream> for RedisSource {
    fn from(stream: RedisStream) -> Self {
        Self::Stream(stream)
    }
}

impl From<RedisList> for RedisSource {
    fn from(list: RedisList) -> Self {
        Self::List(list)
    }
}

impl From<RedisChannel> for RedisSource {
    fn from(channel: RedisChannel) -> Self {
        Self::Channel(channel)
    }
}

impl Source for RedisSource {
    type Connection = RedisConnection;
    type Fetch = RedisFetch;
    type Settle = RedisSettle;

    fn name(&self) -> &str {
        match self {
            Self::Stream(stream) => stream.name(),
            Self::List(list) => list.name(),
            Self::Channel(channel) => channel.name(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Stream(stream) => stream.capabilities(),
            Self::List(list) => list.capabilities(),
            Self::Channel(channel) => channel.capabilities(),
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        match self {
            Self::Stream(stream) => stream.check(),
            Self::List(list) => list.check(),
            Self::Channel(channel) => channel.check(),
        }
    }

    fn audience(&self) -> Option<Audience> {
        match self {
            Self::Stream(stream) => stream.audience(),
            Self::List(list) => list.audience(),
            Self::Channel(channel) => channel.audience(),
        }
    }

    async fn open(&self, connection: &RedisConnection) -> Result<(RedisFetch, RedisSettle), TransportError> {
        Ok(match self {
            Self::Stream(stream) => {
                let (fetch, settle) = stream.open(connection).await?;
                (RedisFetch::stream(fetch), RedisSettle::stream(settle))
            }
            Self::List(list) => {
                let (fetch, settle) = list.open(connection).await?;
                (RedisFetch::list(fetch), RedisSettle::item(settle))
            }
            Self::Channel(channel) => {
                let (fetch, settle) = channel.open(connection).await?;
                (RedisFetch::channel(fetch), RedisSettle::item(settle))
            }
        })
    }

    async fn dead_letters(&self, connection: &RedisConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        Ok(Some(Box::new(Walk::open(connection, self.name()).await?)))
    }
}
