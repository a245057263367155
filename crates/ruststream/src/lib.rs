//! A messaging framework: a handler is a plain `async fn`, and nothing is lost by default.
//!
//! RustStream runs handlers on SQL tables, message brokers or in process, with one set of rules for retries, dead letters,
//! order, shutdown and health. This crate is all that a service's author imports, together with the crate of a transport
//! (`ruststream-sqlx` for SQL tables; [`memory`] is built in).
//!
//! ```
//! use ruststream::prelude::*;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     id: u64,
//!     cents: i64,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Receipt {
//!     order: u64,
//! }
//!
//! #[subscriber("orders", reply = "receipts")]
//! async fn confirm(order: Order) -> Result<Receipt, String> {
//!     if order.cents < 0 {
//!         return Err(format!("order {} has a negative price", order.id));
//!     }
//!     Ok(Receipt { order: order.id })
//! }
//!
//! fn app() -> RustStream {
//!     RustStream::new(AppInfo::new("shop", "1.0.0"))
//!         .with_broker(MemoryBroker::new(), |broker| {
//!             broker
//!                 .include(confirm)
//!                 .workers(8)
//!                 .retry(Retry::exponential(Duration::from_millis(200)).attempts(5))
//!                 .dead_letter("orders.dead");
//!         })
//!         .build()
//! }
//! # app().check().unwrap();
//! ```
//!
//! # Where things are
//!
//! - [`mod@app`]: putting a service together, starting, watching and stopping it; the attributes `#[subscriber]` and `#[ruststream::app]` write the rest.
//! - [`handler`]: what a handler can take and return. [`publish`]: sending messages. [`policy`]: retries and order.
//! - [`layer`]: what is done around handlers: a limit for many of them, idempotency, filters, tracing.
//! - [`message`] and [`codec`]: headers, payloads, JSON.
//! - `testing` (feature `testing`): a finished app in process, with an hour of backoff in milliseconds.
//! - [`transport`]: the contract that a broker crate implements; `conformance` (feature `conformance`): the suite that proves it.

pub mod app;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod handler;
pub mod layer;
pub mod memory;
pub mod message;
pub mod policy;
pub mod prelude;
pub mod publish;
mod runtime;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;

pub use app::{AppInfo, RustStream};
pub use handler::Message;
pub use ruststream_macros::{Message, app, subscriber};
