//! A stream as a source.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ruststream::transport::{Audience, Capabilities, DeadLetters, ErrorKind, Source, TransportError};

use super::time::since_epoch;
use super::{EntryId, StreamFetch, StreamSettle};
use crate::commands::Mode;
use crate::connection::RedisConnection;
use crate::names::{check_group, check_name};
use crate::walk::Walk;

/// The lease unless another is set.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A stream, read by a consumer group.
///
/// Subscriptions of one group share its messages, in any number of processes; each group gets every message. A group is made
/// when it is first read, and made again if the server lost it.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use ruststream::transport::Source;
/// use ruststream_fred::{RedisStream, Retention, Start};
///
/// let orders = RedisStream::new("orders")
///     .group("billing")
///     .start(Start::Now)
///     .lease(Duration::from_secs(10))
///     .retention(Retention::Acked);
/// assert!(orders.check().is_ok());
/// assert!(RedisStream::new("").check().is_err());
/// ```
#[derive(Debug, Clone)]
pub struct RedisStream {
    pub(crate) name: Arc<str>,
    /// That of the broker where none is named.
    pub(crate) group: Option<Arc<str>>,
    pub(crate) start: Start,
    pub(crate) lease: Duration,
    pub(crate) retention: Retention,
    pub(crate) commands: Option<Mode>,
}

/// Where a consumer group begins when it is made. One that is there goes on where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Start {
    /// With the oldest entry of the stream, so that what was published before the group was made is not lost.
    #[default]
    Beginning,
    /// With the first entry added after the group was made.
    Now,
    /// With the first entry behind this one.
    After(EntryId),
    /// With the first entry that was added at this time or later, by the clock of the server.
    Since(SystemTime),
}

impl Start {
    pub(crate) fn word(self) -> String {
        match self {
            Self::Beginning => "0".to_owned(),
            Self::Now => "$".to_owned(),
            Self::After(id) => id.to_string(),
            Self::Since(time) => {
                let first = EntryId {
                    millis: since_epoch(time),
                    sequence: 0,
                };
                first.before().to_string()
            }
        }
    }
}

/// Which entries a stream keeps. None of these removes an entry that a group has not acked.
///
/// The stream is looked at about once a second, by one of the consumers of each group. Where several groups read a stream, set the same
/// for all: the strictest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retention {
    /// All of them: the stream grows until someone trims it.
    #[default]
    All,
    /// Those that a group has yet to ack: the stream is a queue. A group that is made later finds nothing of what was acked before.
    Acked,
    /// About so many of the newest. Redis keeps entries in blocks of a hundred or so, and removes whole blocks.
    Length(u64),
    /// Those that are not older than this.
    Age(Duration),
}

impl RedisStream {
    /// The stream of this key. It needs no making.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            group: None,
            start: Start::default(),
            lease: DEFAULT_LEASE,
            retention: Retention::default(),
            commands: None,
        }
    }

    /// Names the consumer group, in place of [that of the broker](crate::RedisBroker::group).
    pub fn group(mut self, name: &str) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Sets where the group begins when it is made: [`Start::Beginning`] unless set.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets for how long a consumer may be silent before others take what it holds: 30 seconds unless set, and at least 10 ms.
    ///
    /// While handlers work, the idle time of their entries is reset, so this bounds how long a message waits after its process was
    /// killed. It should be the same in all services of a group.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(10));
        self
    }

    /// Lets handlers queue [commands of their own](crate::RedisCommands) that travel with the acks, in one round trip for many messages.
    ///
    /// What a handler queued is run once its message is acked, in one step of the server with the ack. A process that dies before has
    /// sent nothing; one whose link is lost meanwhile asks the server which messages are done before it sends anything again.
    pub fn pipeline(mut self) -> Self {
        self.commands = Some(Mode::Pipeline);
        self
    }

    /// As [`pipeline`](Self::pipeline), and the server is asked of each message whether this consumer still holds it, in the same step:
    /// the commands and the ack of each are done exactly once, or not at all, also where a clock jumped or this process stood still for
    /// longer than its lease. It costs the server one look more a message.
    ///
    /// A reply of the handler is published before the ack as ever; one that is to be part of the step is
    /// [queued](crate::RedisCommands::publish) instead.
    pub fn atomic(mut self) -> Self {
        self.commands = Some(Mode::Atomic);
        self
    }

    /// Sets which entries the stream keeps: [`Retention::All`] unless set.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }
}

impl Source for RedisStream {
    type Connection = RedisConnection;
    type Fetch = StreamFetch;
    type Settle = StreamSettle;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with_lease(self.lease)
            .with_delay()
            .with_dead_letters()
            .with_attempts()
    }

    fn check(&self) -> Result<(), TransportError> {
        check_name(&self.name)?;
        if let Some(group) = &self.group {
            check_group(group)?;
        }
        if let Retention::Length(0) = self.retention {
            return Err(TransportError::new(
                ErrorKind::Invalid,
                format!(
                    "the stream {:?} is to keep no entries: use `Retention::Acked` to keep those that are not acked yet",
                    self.name
                ),
            ));
        }
        Ok(())
    }

    fn audience(&self) -> Option<Audience> {
        // Those that name no group are of one, that of the broker.
        Some(self.group.clone().map_or_else(Audience::shared, Audience::group))
    }

    async fn open(&self, connection: &RedisConnection) -> Result<(StreamFetch, StreamSettle), TransportError> {
        self.check()?;
        Ok(super::open(self, connection).await?)
    }

    async fn dead_letters(&self, connection: &RedisConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        Ok(Some(Box::new(Walk::open(connection, self.name()).await?)))
    }
}
