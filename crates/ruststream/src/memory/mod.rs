//! The in-process broker: queues, broadcasts and patterns in the memory of one process.
//!
//! It keeps nothing through the end of the process. It is for tests, for work handed from one part of a program to another,
//! and it is the reference that the conformance suite is written against.
//!
//! # What gets a message
//!
//! A message is published to one name, such as `orders.eu`; levels are split at `.`. Three kinds of
//! [source](Queue) read it:
//!
//! | source | who shares | what it sees |
//! | --- | --- | --- |
//! | the queue `orders.eu` | subscriptions on the same name share its messages | all that was published to the name and kept for it |
//! | a pattern: `orders.*` (one level), `orders.>` (one level or more) | subscriptions on the same pattern text share its messages | what was published to a matching name after the pattern was first opened |
//! | [`Queue::broadcast`]`("orders.eu")` | no one: each subscription has its own copy | what was published to the name while the subscription is open |
//!
//! Each of these that matches gets its own copy of a message: two patterns and a queue make three. A queue on which no
//! subscription was ever opened gets a copy only where nothing else matches, so that nothing published before the service
//! started is lost and nothing heaps up unread beside a pattern or a broadcast.
//!
//! Queues and patterns outlive their subscriptions: what stands in them waits for the next. A broadcast's copy ends with its
//! subscription.
//!
//! # What it promises
//!
//! Queues are bounded. A publish that finds one of its destinations full waits for room in all of them and fails as
//! [busy](crate::transport::ErrorKind::Busy) when its deadline passes; it stores in all of them or in none. Delays, attempts
//! and dead letters are kept by the broker, on [`tokio::time`], so a paused clock moves them. What a subscription was handed
//! and did not settle returns to its place when the subscription ends, when a [lease](Queue::lease) runs out, or when the
//! link is [cut](MemoryBroker::cut).

#[cfg(feature = "testing")]
mod backlog;
mod broker;
mod dead;
mod delivery;
mod faults;
mod fetch;
mod held;
mod inspect;
mod publish;
mod route;
mod settle;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod walk;

pub use broker::{MemoryBroker, MemoryConnection};
pub use dead::DeadMessage;
#[cfg(feature = "testing")]
pub(crate) use delivery::StandInFields;
pub use delivery::{MemoryDelivery, MemoryReceipt, Origin};
pub use faults::Operation;
pub use fetch::MemoryFetch;
pub use inspect::{Counts, StandingMessage};
pub use publish::MemoryPublisher;
pub use settle::MemorySettle;
pub use source::Queue;
