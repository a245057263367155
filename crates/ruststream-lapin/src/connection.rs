//! A live connection: one link to publish on, one to consume on.

use std::fmt;
use std::sync::Arc;

use ruststream::transport::{Connection, TransportError};

use crate::dead_letters::DeadLetters;
use crate::outbox::Outbox;
use crate::publish::LapinPublisher;
use crate::settings::Settings;

/// A connection to RabbitMQ. It outlives every link under it.
pub struct LapinConnection {
    outbox: Arc<Outbox>,
}

impl LapinConnection {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, TransportError> {
        let outbox = Arc::new(Outbox::new(settings));
        outbox.publishing.live().await?;
        Ok(Self { outbox })
    }

    /// The dead letters that are kept in this queue, such as `orders.dead`: to list, replay and purge.
    pub fn dead_letters(&self, queue: impl Into<String>) -> DeadLetters<'_> {
        DeadLetters::new(self, queue.into())
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }
}

impl Connection for LapinConnection {
    type Publisher = LapinPublisher;

    fn publisher(&self) -> LapinPublisher {
        LapinPublisher::new(self.outbox.clone())
    }

    async fn ping(&self) -> Result<(), TransportError> {
        let link = &self.outbox.publishing;
        let live = link.live().await?;
        // Opening a channel is the smallest thing that a server answers.
        let channel = link.channel(&live).await?;
        link.call(&live, "closing a channel", channel.close(200, "ping".into()))
            .await
    }

    async fn close(&self) {
        self.outbox.close().await;
    }
}

impl fmt::Debug for LapinConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LapinConnection")
            .field("server", &self.outbox.settings.label)
            .finish_non_exhaustive()
    }
}
