//! MQTT 5: a Mosquitto of the suite's own.

mod hand;
mod own;
mod topics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rumqttc::v5::mqttbytes::QoS;
use servers::{Instance, Kind, Settings};

use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// The size of a batch.
const CHUNK: usize = 64;

/// How many unacknowledged messages the server sends ahead, to the loops by hand as to the crate's.
const AHEAD: u16 = 2048;

/// How many filters there are where a message has to find its own among many.
const FILTERS: u64 = 1000;

/// The exchange whose round trip is measured.
const TRIP: &str = "QoS 1 publish";

/// A server, and numbers for the names of sessions and topics.
pub struct Mqtt {
    server: Instance,
    next: AtomicU64,
}

impl Transport for Mqtt {
    const NAME: &'static str = "mqtt";
    const BOUND: Bound = Bound::Broker;
    const CLIENTS: &'static [&'static str] = &["rumqttc"];

    fn scenarios() -> Vec<Scenario<Self>> {
        topics::scenarios()
    }

    async fn open() -> Result<Self, Failed> {
        Ok(Self {
            server: Instance::start(Kind::Mosquitto, Settings::default())?,
            next: AtomicU64::new(0),
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let mut link = hand::Link::open(self, "facts", true, false).await?;
        let trip = round_trip(&mut link, |link| {
            Box::pin(async move {
                link.client.publish("facts", QoS::AtLeastOnce, false, "x").await?;
                link.acknowledged().await
            })
        })
        .await?;
        let version = link.version().await?;
        link.end().await?;
        Ok(Some(Server {
            version,
            settings: BTreeMap::from([("persistence".to_owned(), "false".to_owned())]),
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

impl Mqtt {
    /// A name that no call of a loop has used, of a session and its topic.
    fn name(&self) -> String {
        format!("orders-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}
