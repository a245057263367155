//! A live connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ruststream::transport::{Connection, TransportError};

use crate::broker::Settings;
use crate::dead_letters::DeadLetters;
use crate::hub::Hub;
use crate::names::slot_of;
use crate::publish::RedisPublisher;
use crate::stream::Start;
use crate::wakes::Wakes;

/// A live connection to a server, a cluster, or the primary behind sentinels.
///
/// Each node has one link that all calls share; each subscription has one more, on which it waits.
///
/// # Examples
///
/// ```
/// use ruststream::transport::{Broker, Connection};
/// use ruststream_fred::RedisBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let url = servers::shared(servers::Kind::Redis)?;
/// let connection = RedisBroker::standalone(url).connect().await?;
/// connection.ping().await?;
/// connection.close().await;
/// # Ok(())
/// # }
/// ```
pub struct RedisConnection {
    hub: Arc<Hub>,
    wakes: Wakes,
    dropped: Arc<AtomicU64>,
}

impl RedisConnection {
    pub(crate) async fn open(settings: Settings) -> Result<Self, TransportError> {
        let hub = Arc::new(Hub::new(Arc::new(settings)));
        Box::pin(hub.every_link()).await?;
        Ok(Self {
            hub,
            wakes: Wakes::default(),
            dropped: Arc::default(),
        })
    }

    /// Sets where a consumer group of a stream goes on: back to the beginning or to a time to replay, forward to skip. What is in hand,
    /// and what waits for a retry, stays so.
    ///
    /// # Errors
    ///
    /// Where the server does not answer, or there is no such stream or group.
    ///
    /// # Cancel safety
    ///
    /// A call dropped before it completes may have moved the group.
    pub async fn seek(&self, stream: &str, group: &str, to: Start) -> Result<(), TransportError> {
        let arguments = || vec!["SETID".into(), stream.into(), group.into(), to.word().into()];
        self.hub.call(slot_of(stream), "XGROUP", arguments).await?;
        Ok(())
    }

    /// The dead letters, to list, show, replay and purge.
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters::new(&self.hub)
    }

    /// How many messages of channels were dropped since the connection was made, because their consumers were slower than the
    /// channel; see [`RedisChannel`](crate::RedisChannel#slow-consumers).
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped_count(&self) -> &Arc<AtomicU64> {
        &self.dropped
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub(crate) fn wakes(&self) -> &Wakes {
        &self.wakes
    }
}

impl Connection for RedisConnection {
    type Publisher = RedisPublisher;

    fn publisher(&self) -> RedisPublisher {
        RedisPublisher::new(Arc::clone(&self.hub), self.wakes.clone())
    }

    async fn ping(&self) -> Result<(), TransportError> {
        let most = self.hub.settings().command_timeout;
        for link in self.hub.every_link().await? {
            link.call("PING", Vec::new(), most).await?;
        }
        Ok(())
    }

    async fn close(&self) {
        self.hub.close();
    }
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection")
            .field("label", &self.hub.settings().label)
            .finish_non_exhaustive()
    }
}
