//! Redis and Valkey for `RustStream`, through fred: streams, lists and channels. Redis 7.0, Valkey 7.2 or newer.
//!
//! [`RedisBroker`] names a server, a cluster, or a primary behind sentinels. A subscription by name reads a stream; another
//! [`Form`] can be set for all names of a broker, and each subscription can be given a source of its own:
//!
//! | source | keeps | what a process that dies had in hand |
//! | --- | --- | --- |
//! | [`RedisStream`] | every entry, for any number of consumer groups | comes again when its lease ends |
//! | [`RedisList`] | each message until it is settled | comes again when the lease of its consumer ends |
//! | [`RedisList::at_most_once`] | each message until it is taken | is lost |
//! | [`RedisChannel`] | nothing: who listens gets the message | is lost |
//!
//! # What is promised
//!
//! - A publish that was confirmed is in the stream or the list. Whether it survives the server is the server's matter: `appendonly` and
//!   `appendfsync` say so, and a fail-over can lose what the primary had confirmed and not replicated.
//! - A message of a stream or a list is handed out to one consumer at a time, under a lease which is renewed while its handler works.
//!   What a dead consumer held comes again when the lease has passed, and what it says late is fenced off.
//! - Attempts are counted in the server; a stream or a list counts one that killed its process too.
//! - Delays, retries and dead letters are kept in the server on every form, moved by scripts, and survive the process. Dead letters of
//!   `orders` lie in `orders.dead` (`{orders}.dead` on a cluster), a stream beside a stream, else a list;
//!   [`RedisConnection::dead_letters`] lists, replays and purges them.
//! - Every call has a deadline of this crate's own; a link that failed once is dropped with its socket and made again.
//!
//! # Keys
//!
//! Beside `orders` there are keys and channels that begin with `{orders}:ruststream:`: what is delayed and due, what list consumers hold,
//! and what wakes consumers. Give an ACL user the right to all keys and channels of `*orders*`. Other programs write messages with
//! `XADD orders * payload …` (other fields are headers), `LPUSH orders …` and `PUBLISH orders …`.
//!
//! # Examples
//!
//! ```
//! use ruststream::message::Outgoing;
//! use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
//! use ruststream_fred::{RedisBroker, RedisStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = servers::shared(servers::Kind::Redis)?;
//! # let name = format!("orders-{}", std::process::id());
//! let connection = RedisBroker::standalone(url).connect().await?;
//! connection.publisher().publish(&[Outgoing::new(&name, b"one")]).await?;
//!
//! let (mut fetch, mut settle) = RedisStream::new(&name).open(&connection).await?;
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

mod any;
mod beside;
mod broker;
mod channel;
mod commands;
mod connection;
mod credentials;
mod dead_letters;
mod envelope;
mod error;
mod hub;
mod lease;
mod link;
mod list;
mod message;
mod names;
mod publish;
mod reply;
mod script;
mod sending;
mod source;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod topology;
mod wakes;
mod walk;
mod watchdog;

pub use self::{
    any::{RedisDelivery, RedisFetch, RedisReceipt, RedisSettle},
    beside::{ItemDelivery, ItemReceipt, ItemSettle, RedisItem},
    broker::RedisBroker,
    channel::{ChannelFetch, RedisChannel},
    commands::RedisCommands,
    connection::RedisConnection,
    credentials::CredentialProvider,
    dead_letters::{DeadLetters, DeadMessage},
    list::{ListFetch, RedisList},
    publish::{RedisPublish, RedisPublisher},
    source::{Form, RedisSource},
    stream::{
        EntryId, InvalidEntryId, RedisStream, Retention, Start, StreamDelivery, StreamEntry, StreamFetch,
        StreamReceipt, StreamSettle,
    },
};
