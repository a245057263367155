//! A live connection: one link at a time, for all that is read and published.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Connection, TransportError};
use tokio::time::timeout;

use crate::link;
use crate::publish::MqttPublisher;
use crate::settings::Settings;
use crate::shared::{Ending, Shared, Status};

/// How long closing may take.
const CLOSING: Duration = Duration::from_secs(5);

/// A connection to a server of MQTT. It outlives every link under it.
pub struct MqttConnection {
    shared: Arc<Shared>,
}

impl MqttConnection {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, TransportError> {
        let connection = Self {
            shared: Arc::new(Shared::new(settings)),
        };
        let mut status = connection.shared.status();
        tokio::spawn(link::drive(connection.shared.clone()));
        // The first attempt has a deadline of its own.
        let first = status.wait_for(|status| !matches!(status, Status::Connecting)).await;
        match first.as_deref() {
            Ok(Status::Down(failure)) => Err(failure.clone().into()),
            Ok(_) => Ok(connection),
            Err(_) => Err(connection.shared.closed()),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Connection for MqttConnection {
    type Publisher = MqttPublisher;

    fn publisher(&self) -> MqttPublisher {
        MqttPublisher::new(self.shared.clone())
    }

    async fn ping(&self) -> Result<(), TransportError> {
        self.shared.ping().await
    }

    async fn close(&self) {
        self.shared.end(Ending::Told);
        let mut status = self.shared.status();
        let _ = timeout(CLOSING, status.wait_for(|status| matches!(status, Status::Closed))).await;
    }
}

impl Drop for MqttConnection {
    fn drop(&mut self) {
        self.shared.end(Ending::Untold);
    }
}

impl fmt::Debug for MqttConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttConnection")
            .field("server", &self.shared.settings.label)
            .finish_non_exhaustive()
    }
}
