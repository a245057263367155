//! Classic and quorum queues pass the conformance suite, on a real server.

#![allow(clippy::unwrap_used, reason = "a test that has no server is a failed test")]

use std::sync::Mutex;
use std::time::Duration;

use ruststream::conformance::{Features, Harness, unique_name};
use ruststream::transport::{Broker, Connection, Delivery, Fetch, Source, TransportError};
use ruststream_lapin::{Declaration, LapinBroker, Queue, QueueType};
use servers::{Kind, Proxy};
use tokio::time::timeout;

/// The server that all tests share, through a proxy that can cut the links.
struct Server<const QUORUM: bool> {
    proxy: Proxy,
    url: String,
    /// The suite publishes to names before anyone reads them, and RabbitMQ takes that only for queues that are there.
    names: Mutex<Vec<String>>,
}

impl<const QUORUM: bool> Harness for Server<QUORUM> {
    type Broker = LapinBroker;

    async fn start() -> Self {
        let url = servers::shared(Kind::Rabbit).unwrap();
        let (front, rest) = url.rsplit_once(':').unwrap();
        let (port, vhost) = rest.split_once('/').unwrap_or((rest, ""));
        let proxy = Proxy::to(port.parse().unwrap()).unwrap();
        let url = format!("{front}:{}/{vhost}", proxy.port());
        let names = Mutex::default();
        Self { proxy, url, names }
    }

    fn broker(&self) -> LapinBroker {
        let queue_type = if QUORUM { QueueType::Quorum } else { QueueType::Classic };
        let broker = LapinBroker::new(&self.url).queue_type(queue_type);
        let names = self.names.lock().unwrap();
        names.iter().fold(broker, |broker, name| {
            let queue = broker.source(name);
            broker.declare(queue)
        })
    }

    fn name(&self) -> String {
        let name = unique_name();
        self.names.lock().unwrap().push(name.clone());
        name
    }

    fn features(&self) -> Features {
        // What is released is a copy, at the end of the queue.
        Features::default().without_places()
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.broker().connect().await?;
        let queue = Queue::new(format!("{name}.dead")).declaration(Declaration::Passive);
        let mut kept = Vec::new();
        match queue.open(&connection).await {
            Err(error) if error.is_unroutable() => {}
            Err(error) => return Err(error),
            Ok((mut fetch, _settle)) => {
                let _ = timeout(Duration::from_millis(300), fetch.fetch(10, &mut kept)).await;
            }
        }
        connection.close().await;
        Ok(Some(kept.iter().map(|delivery| delivery.payload().to_vec()).collect()))
    }

    async fn cut(&self) -> bool {
        self.proxy.cut();
        // An ack has no answer in AMQP: one that is written in the moment of the cut counts as settled, and its message comes again.
        // The suite asks what becomes of receipts after the cut, so both ends are given the time to see it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        true
    }
}

mod classic {
    use super::*;

    ruststream::conformance::suite!(Server<false>);
}

mod quorum {
    use super::*;

    ruststream::conformance::suite!(Server<true>);
}
