//! RabbitMQ for `RustStream`, through lapin: classic and quorum queues, streams.
//!
//! # What is promised
//!
//! - A publish that was confirmed is the server's: persistent, and written to the disk for quorum queues. One that reaches no queue is
//!   an error.
//! - A message is handed out to one subscription at a time. When its link is lost, the server hands it out again, and what its
//!   late holder then says changes nothing.
//! - Attempts are counted through retries, restarts and crashes: by the queue itself where it is a quorum queue, and by copies of
//!   the message where it is a classic one.
//! - Delays are kept by the server. A retry, a release or a dead letter is a copy, confirmed before the original is acked. A crash
//!   between the two leaves both: a message is then handled twice, never lost.
//! - A lost link is made anew with its queues and consumers, whatever ended it. Trouble that will not pass by itself ends the
//!   subscription with an error that names the fix.
//! - A stream is read on from where its reader stands, which the server keeps: behind what was settled with all before it.
//!
//! What is *not* promised: that attempts at a message of a stream are counted through a crash; that a released or crashed
//! message keeps its place in a queue, since its copy stands at the end.
//!
//! # Examples
//!
//! ```no_run
//! use ruststream::message::Outgoing;
//! use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
//! use ruststream_lapin::{LapinBroker, Queue};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = LapinBroker::new("amqp://localhost").connect().await?;
//! let (mut fetch, mut settle) = Queue::new("orders").open(&connection).await?;
//! connection.publisher().publish(&[Outgoing::new("orders", b"one")]).await?;
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

mod beside;
mod book;
mod broker;
mod check;
mod connection;
mod dead_letters;
mod deaths;
mod delay;
mod delivery;
mod error;
mod exchanges;
mod fetch;
mod link;
mod options;
mod outbox;
mod position;
mod properties;
mod publish;
mod queue;
mod replies;
mod routes;
mod session;
mod settings;
mod settle;
mod stream;
mod topology;
mod transaction;
mod walk;

/// Properties and values of AMQP, as lapin has them.
pub use lapin::{BasicProperties, types};

pub use self::{
    beside::LapinTransaction,
    broker::LapinBroker,
    connection::LapinConnection,
    dead_letters::{DeadLetters, DeadMessage},
    deaths::Death,
    delivery::{MessageFields, QueueDelivery, QueueReceipt},
    fetch::QueueFetch,
    options::LapinPublish,
    publish::LapinPublisher,
    queue::{Declaration, Queue, QueueType},
    settle::QueueSettle,
    stream::StreamOffset,
    topology::{Binding, Declared, Exchange},
};
