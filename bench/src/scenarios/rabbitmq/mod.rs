//! RabbitMQ: one node of the suite's own.

mod hand;
mod own;
mod queues;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use lapin::options::{BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use ruststream_lapin::QueueType;
use servers::{Instance, Kind, Settings};

use crate::results::{Bound, Server};
use crate::suite::{Failed, Scenario, Transport, round_trip};

/// What a tuned loop acks at a time, and the size of a batch.
const CHUNK: usize = 64;

/// How many messages the server sends ahead to the loops by hand.
const PREFETCH: u16 = 1024;

/// The call whose round trip is measured.
const TRIP: &str = "basic.qos";

/// A node, and numbers for the names of its queues.
pub struct Rabbit {
    server: Instance,
    next: AtomicU64,
}

impl Transport for Rabbit {
    const NAME: &'static str = "rabbitmq";
    const BOUND: Bound = Bound::Broker;
    const CLIENTS: &'static [&'static str] = &["lapin"];

    fn scenarios() -> Vec<Scenario<Self>> {
        queues::scenarios()
    }

    async fn open() -> Result<Self, Failed> {
        Ok(Self {
            server: Instance::start(Kind::Rabbit, Settings::default())?,
            next: AtomicU64::new(0),
        })
    }

    async fn server(&self) -> Result<Option<Server>, Failed> {
        let version = self.server.rabbitmqctl(&["version"])?.trim().to_owned();
        let connection = self.connection().await?;
        let mut channel = connection.create_channel().await?;
        let trip = round_trip(&mut channel, |channel| {
            Box::pin(async move {
                channel.basic_qos(1, BasicQosOptions::default()).await?;
                Ok(())
            })
        })
        .await?;
        connection.close(200, "done".into()).await?;
        Ok(Some(Server {
            version: format!("RabbitMQ {version}"),
            settings: BTreeMap::new(),
            round_trip_us: BTreeMap::from([(TRIP.to_owned(), trip)]),
        }))
    }
}

impl Rabbit {
    /// A connection as one would make it by hand.
    async fn connection(&self) -> Result<Connection, Failed> {
        Ok(Connection::connect(&self.server.url(), ConnectionProperties::default()).await?)
    }

    /// A name that no call of a loop has used.
    fn name(&self) -> String {
        format!("orders-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Declares a queue, as `ruststream_lapin::Queue` does.
async fn declare(channel: &Channel, name: &str, queue_type: QueueType) -> Result<u64, Failed> {
    let word = |word: &str| AMQPValue::LongString(word.into());
    let mut arguments = FieldTable::default();
    if queue_type == QueueType::Quorum {
        arguments.insert("x-queue-type".into(), word("quorum"));
        arguments.insert("x-dead-letter-exchange".into(), word(""));
        arguments.insert("x-dead-letter-routing-key".into(), word(&format!("{name}.dead")));
        arguments.insert("x-dead-letter-strategy".into(), word("at-least-once"));
        arguments.insert("x-overflow".into(), word("reject-publish"));
    } else {
        arguments.insert("x-queue-type".into(), word("classic"));
    }
    let queue = channel
        .queue_declare(name.into(), QueueDeclareOptions::durable(), arguments)
        .await?;
    Ok(u64::from(queue.message_count()))
}
