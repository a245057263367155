//! MQTT 5 and 3.1.1 for `RustStream`, on the packets of rumqttc.
//!
//! # What is promised
//!
//! - A publish at QoS 1 or 2 that was confirmed is the server's; what it refuses is an error with its reason, and each publish ends
//!   within a deadline. At QoS 0, *confirmed* means that it was written.
//! - A message of QoS 1 or 2 is acknowledged only after its handler, and after those of all subscriptions of the connection that got it; each
//!   subscription gets it once, however its filters overlap. They are acknowledged as their handlers finish, in any order.
//! - What was not acknowledged when the link is lost comes again, and what its late holder then says changes nothing. What was
//!   published meanwhile comes too, as long as the session stands; a fixed [`client_id`](MqttBroker::client_id) keeps it through restarts
//!   of the process.
//! - At most [`receive_maximum`](MqttBroker::receive_maximum) messages are unsettled at once; the server keeps the others.
//! - A lost link is made anew with its subscriptions, whatever ended it.
//!
//! What is *not* promised: delays and dead letters in the server, which MQTT does not know; the runtime keeps retries in hand,
//! unacknowledged, and publishes dead letters. Attempts are counted as long as the process lives; to the next, what comes again is the
//! second attempt. Messages of QoS 0 are lost with the link, and the oldest are dropped where handlers are slower than what comes.
//!
//! # Examples
//!
//! ```no_run
//! use ruststream::message::Outgoing;
//! use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
//! use ruststream_rumqttc::{MqttBroker, TopicFilter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = MqttBroker::new("mqtt://localhost").connect().await?;
//! let (mut fetch, mut settle) = TopicFilter::new("orders/+").open(&connection).await?;
//! connection.publisher().publish(&[Outgoing::new("orders/new", b"one")]).await?;
//!
//! let mut deliveries = Vec::new();
//! fetch.fetch(64, &mut deliveries).await?;
//! assert_eq!(deliveries[0].payload(), b"one");
//!
//! let mut finished = deliveries.drain(..).map(|delivery| (delivery.into_receipt(), Verdict::Ack)).collect();
//! settle.settle(&mut finished).await?;
//! # Ok(())
//! # }
//! ```

mod broker;
mod connection;
mod delivery;
mod error;
mod extract;
mod fetch;
mod filter;
mod filters;
mod inbound;
mod link;
mod options;
mod outbound;
mod properties;
mod publish;
mod routes;
mod settings;
mod settle;
mod shared;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod topic;
mod wire;

/// Words of MQTT, as rumqttc has them.
pub use rumqttc::v5::mqttbytes::QoS;
/// What MQTT 5 knows of a message, and which retained messages a subscription gets, as rumqttc has it.
pub use rumqttc::v5::mqttbytes::v5::{PublishProperties, RetainForwardRule};

pub use self::{
    broker::MqttBroker,
    connection::MqttConnection,
    delivery::{MessageFields, MqttDelivery, MqttReceipt},
    extract::{FromLevels, Levels},
    fetch::MqttFetch,
    filter::TopicFilter,
    options::MqttOptions,
    publish::MqttPublisher,
    settle::MqttSettle,
    wire::MqttVersion,
};
