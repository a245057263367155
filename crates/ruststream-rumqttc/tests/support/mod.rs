//! What the tests share: servers of their own, and a subscription whose waits have deadlines.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::print_stderr, reason = "what came instead of nothing is worth seeing")]

use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{Connection, Delivery, Fetch, Publish, Settle, Settled, Source, Verdict};
use ruststream_rumqttc::{MqttBroker, MqttConnection, MqttDelivery, MqttFetch, MqttSettle, TopicFilter};
use servers::{Instance, Kind, Settings};
use tokio::time::{sleep, timeout};

/// How long a test waits for what is to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn server(durable: bool) -> Instance {
    Instance::start(Kind::Mosquitto, Settings { durable }).unwrap()
}

pub(crate) fn broker(port: u16) -> MqttBroker {
    MqttBroker::new(format!("mqtt://127.0.0.1:{port}"))
}

/// Both halves of a subscription.
pub(crate) struct Reader {
    pub(crate) fetch: MqttFetch,
    pub(crate) settle: MqttSettle,
}

impl Reader {
    pub(crate) async fn open(source: TopicFilter, connection: &MqttConnection) -> Self {
        let (fetch, settle) = source.open(connection).await.unwrap();
        Self { fetch, settle }
    }

    /// The next deliveries, at least one; passing errors are followed by `recover`, as the runtime does it.
    pub(crate) async fn next(&mut self, room: usize) -> Vec<MqttDelivery> {
        let mut deliveries = Vec::new();
        let taking = async {
            loop {
                match self.fetch.fetch(room, &mut deliveries).await {
                    Ok(()) => return,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                while let Err(error) = self.fetch.recover().await {
                    assert!(error.is_transient(), "{error}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        };
        timeout(PATIENCE, taking).await.expect("nothing came");
        deliveries
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<MqttDelivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            deliveries.extend(self.next(count - deliveries.len()).await);
        }
        deliveries
    }

    /// True if a fetch brings nothing for so long; what it brings is shown.
    pub(crate) async fn is_quiet_for(&mut self, time: Duration) -> bool {
        let mut deliveries = Vec::new();
        let fetched = timeout(time, self.fetch.fetch(1, &mut deliveries)).await;
        if let Ok(fetched) = &fetched {
            eprintln!("instead of nothing: {fetched:?} {deliveries:?}");
        }
        fetched.is_err()
    }

    pub(crate) async fn ack(&mut self, deliveries: Vec<MqttDelivery>) -> Settled {
        let mut finished = deliveries
            .into_iter()
            .map(|delivery| (delivery.into_receipt(), Verdict::Ack))
            .collect();
        self.settle.settle(&mut finished).await.unwrap()
    }
}

pub(crate) async fn publish<P: AsRef<[u8]>>(connection: &MqttConnection, topic: &str, payloads: &[P]) {
    let messages: Vec<_> = payloads
        .iter()
        .map(|payload| Outgoing::new(topic, payload.as_ref()))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
}

pub(crate) fn payloads(deliveries: &[MqttDelivery]) -> Vec<String> {
    let text = |delivery: &MqttDelivery| String::from_utf8(delivery.payload().to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

/// Looks until `there` says yes: for what has no signal of its own.
pub(crate) async fn until(what: &str, most: Duration, mut there: impl FnMut() -> bool) {
    let looking = async {
        while !there() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(most, looking)
        .await
        .unwrap_or_else(|_| panic!("not within {most:?}: {what}"));
}

impl Reader {
    /// What comes within so long, trouble passed by.
    pub(crate) async fn take_if_any(&mut self, time: Duration) -> Vec<MqttDelivery> {
        let mut deliveries = Vec::new();
        let taking = async {
            while deliveries.is_empty() {
                if self.fetch.fetch(100, &mut deliveries).await.is_err() {
                    let _ = self.fetch.recover().await;
                }
            }
        };
        let _ = timeout(time, taking).await;
        deliveries
    }

    /// True if nothing comes within so long after the link was made anew.
    pub(crate) async fn is_quiet_after_recovery(&mut self, time: Duration) -> bool {
        let lost = timeout(PATIENCE, self.fetch.fetch(1, &mut Vec::new()))
            .await
            .expect("the link was not lost");
        assert!(lost.is_err(), "something came instead of the loss");
        self.fetch.recover().await.unwrap();
        self.is_quiet_for(time).await
    }
}
