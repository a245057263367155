//! Redis and Valkey streams for `RustStream`, through fred.
//!
//! [`RedisBroker`] names a server, a cluster, or a primary behind sentinels. A subscription by name reads the stream of that key by
//! a consumer group, as one consumer among any number. Redis 7.0, Valkey 7.2 or newer.
//!
//! # What is promised
//!
//! - A publish that was confirmed is in the stream. Whether it survives the server is the server's matter: `appendonly` and
//!   `appendfsync` say so, and a fail-over can lose what the primary had confirmed and not replicated.
//! - A message is handed out to one consumer of a group at a time, under a lease: the idle time that the server counts, which is
//!   reset while its handler works. What a dead consumer held comes again when the lease has passed, and what it says late is
//!   fenced off.
//! - Attempts are the server's delivery count, so that a message which kills its process is counted too.
//! - Delays, retries and dead letters are kept in the server, moved by scripts, and survive the process. Dead letters of the stream
//!   `orders` lie in the stream `orders.dead` (`{orders}.dead` on a cluster).
//! - Every call has a deadline of this crate's own; a link that failed once is dropped with its socket and made again.
//!
//! # Keys
//!
//! Beside the stream `orders` there are keys that begin with `{orders}:ruststream:`: what is delayed, when retries of each group are
//! due, and a small stream that wakes consumers. Give an ACL user the right to all of `*orders*`.
//!
//! # Examples
//!
//! ```
//! use ruststream::message::Outgoing;
//! use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
//! use ruststream_fred::{RedisBroker, RedisSource};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = servers::shared(servers::Kind::Redis)?;
//! # let name = format!("orders-{}", std::process::id());
//! let connection = RedisBroker::standalone(url).connect().await?;
//! connection.publisher().publish(&[Outgoing::new(&name, b"one")]).await?;
//!
//! let (mut fetch, mut settle) = RedisSource::stream(&name).open(&connection).await?;
//! let mut deliveries = Vec::new();
//! fetch.fetch(64, &mut deliveries).await?;
//! assert_eq!(deliveries[0].payload(), b"one");
//!
//! let mut finished = deliveries.drain(..).map(|delivery| (delivery.into_receipt(), Verdict::Ack)).collect();
//! settle.settle(&mut finished).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod broker;
mod connection;
mod credentials;
mod delivery;
mod error;
mod hub;
mod lease;
mod link;
mod message;
mod names;
mod publish;
mod reply;
mod script;
mod source;
mod stream;
mod topology;
mod wakes;

pub use self::{
    broker::RedisBroker,
    connection::RedisConnection,
    credentials::CredentialProvider,
    delivery::{RedisDelivery, RedisReceipt, StreamEntry},
    publish::RedisPublisher,
    source::{RedisSource, Retention, Start},
    stream::{EntryId, InvalidEntryId, StreamFetch, StreamSettle},
};
