//! Ready-made layers: what many services want done around their handlers.
//!
//! Each is put on handlers by [`BrokerScope::layer`](crate::app::BrokerScope::layer); [`Layer`](crate::handler::Layer) says how layers nest and how
//! to write one. A time limit for calls is no layer but a setting of the subscription,
//! [`timeout`](crate::app::Subscription::timeout).
//!
//! # Examples
//!
//! ```
//! use ruststream::layer::{ConcurrencyLimit, OnlyIf, Traced};
//! use ruststream::prelude::*;
//!
//! #[subscriber("orders")]
//! async fn confirm(order: u64) {}
//!
//! #[subscriber("invoices")]
//! async fn charge(invoice: u64) {}
//!
//! let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
//!     .with_broker(MemoryBroker::new(), |broker| {
//!         broker.layer(Traced, |broker| {
//!             broker.layer(OnlyIf::header("region", "eu"), |broker| {
//!                 broker.include(confirm).workers(64);
//!             });
//!             // The bank takes eight calls at a time, whatever they are about.
//!             broker.layer(ConcurrencyLimit::new(8), |broker| {
//!                 broker.include(charge).workers(64);
//!             });
//!         });
//!     })
//!     .build();
//! # app.check().unwrap();
//! ```

mod claim_check;
#[cfg(any(feature = "gzip", feature = "zstd"))]
mod compressed;
mod concurrency;
mod idempotent;
mod only_if;
#[cfg(feature = "tower")]
mod tower;
mod traced;
mod unpack;

pub use claim_check::{ClaimCheck, PayloadFiles, PayloadStore};
#[cfg(any(feature = "gzip", feature = "zstd"))]
pub use compressed::Compressed;
pub use concurrency::ConcurrencyLimit;
pub use idempotent::{Claim, IdempotencyStore, Idempotent, MemoryIdempotency};
pub use only_if::OnlyIf;
#[cfg(feature = "tower")]
pub use tower::{HandlerCall, HandlerService, Tower};
pub use traced::Traced;
