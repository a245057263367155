//! Each database passes the conformance suite.

use std::time::Duration;

use ruststream::conformance::Harness;
use ruststream::transport::{Broker, TransportError};
use ruststream_sqlx::Inbox;

use crate::place::{Place, PlaceBroker};

/// A place of its own for each check; each broker has its own connection to it, as another process would.
impl Harness for Place {
    type Broker = PlaceBroker;

    async fn start() -> Self {
        Place::new().await
    }

    fn broker(&self) -> PlaceBroker {
        self.broker()
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<Inbox> {
        Some(Inbox::queue(name).lease(lease))
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.broker().connect().await?;
        let letters = connection.dead_letters().list(name, 1000).await?;
        Ok(Some(letters.into_iter().map(|letter| letter.payload).collect()))
    }

    async fn cut(&self) -> bool {
        self.cut_links().await
    }
}

ruststream::conformance::suite!(Place);
