//! Lists as queues: reliable ones, whose messages are held until they are settled, and plain ones.
//!
//! Messages are taken from the right and put in on the left, as most programs do that use lists so. One script takes many at once into
//! the place of the consumer, a hash, so that one message costs the same however long the list and however many are in hand.

mod fetch;

use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Audience, Capabilities, DeadLetters, Source, TransportError};

pub use fetch::ListFetch;

use crate::beside::{Beside, ItemSettle, Kind};
use crate::connection::RedisConnection;
use crate::names::check_name;
use crate::walk::Walk;

/// The lease unless another is set.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A list.
///
/// Subscriptions on one list share its messages, in any number of processes. What one has taken is held in a place of its own in the
/// server until it is settled, and goes back when its consumer is gone; see [`at_most_once`](Self::at_most_once) for the other way.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::transport::Source;
/// use ruststream_fred::RedisList;
///
/// let jobs = RedisList::new("jobs").lease(Duration::from_secs(10));
/// assert!(jobs.check().is_ok());
/// assert!(RedisList::new("").check().is_err());
/// ```
#[derive(Debug, Clone)]
pub struct RedisList {
    name: Arc<str>,
    lease: Duration,
    kind: Kind,
    has_commands: bool,
}

impl RedisList {
    /// The list of this key. It needs no making.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            lease: DEFAULT_LEASE,
            kind: Kind::Reliable,
            has_commands: false,
        }
    }

    /// Sets for how long a consumer may be silent before others take what it holds: 30 seconds unless set, and at least 10 ms.
    ///
    /// While handlers work it is said that the consumer lives, so this bounds how long a message waits after its process was killed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(10));
        self
    }

    /// Takes messages without holding them: what was taken and not settled when its process dies is lost. Retries and dead letters
    /// are kept in the server all the same.
    ///
    /// For messages that are worth less than the one hash entry that holding costs.
    pub fn at_most_once(mut self) -> Self {
        self.kind = Kind::Plain;
        self
    }

    /// Lets handlers queue [commands of their own](crate::RedisCommands) that travel with the acks, in one round trip for many messages,
    /// the commands and the ack of each in one step of the server.
    ///
    /// Of a reliable list both are done exactly once, or not at all: what another consumer took over leaves nothing behind. No one holds
    /// the messages of a plain list, so where an answer is lost their commands may be run again.
    pub fn pipeline(mut self) -> Self {
        self.has_commands = true;
        self
    }

    /// The same as [`pipeline`](Self::pipeline): a list has no way to ack that is not asked of the holder.
    pub fn atomic(self) -> Self {
        self.pipeline()
    }
}

impl Source for RedisList {
    type Connection = RedisConnection;
    type Fetch = ListFetch;
    type Settle = ItemSettle;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let kept = Capabilities::none().with_delay().with_dead_letters();
        match self.kind {
            Kind::Reliable => kept.with_lease(self.lease).with_attempts(),
            _ => kept.with_attempts(),
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        check_name(&self.name)
    }

    fn audience(&self) -> Option<Audience> {
        Some(Audience::shared())
    }

    async fn open(&self, connection: &RedisConnection) -> Result<(ListFetch, ItemSettle), TransportError> {
        self.check()?;
        let beside = Arc::new(Beside::new(
            &self.name,
            self.kind,
            self.lease,
            self.has_commands,
            connection,
        ));
        beside.check_type().await?;
        Ok((ListFetch::new(Arc::clone(&beside)), ItemSettle::new(beside)))
    }

    async fn dead_letters(&self, connection: &RedisConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        Ok(Some(Box::new(Walk::open(connection, self.name()).await?)))
    }
}
