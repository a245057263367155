//! The contract of a transport: what a broker crate implements, and all that the runtime knows of it.
//!
//! A crate implements seven small traits:
//!
//! - [`Broker`] holds settings and connects; [`Connection`] is live: it hands out publishers, answers pings, closes.
//! - [`Source`] says what to read and opens into two halves: [`Fetch`] takes deliveries, many a call; [`Settle`] gives
//!   receipts back, many a call. They are apart so that new deliveries are awaited while receipts travel.
//! - [`Delivery`] is one message in hand; taking its receipt ends it.
//! - [`Publish`] sends one message or many, and is done when the broker has confirmed.
//!
//! Only `fetch` and `settle` are hot. What a transport does itself it declares as [`Capabilities`]; the runtime supplies the
//! rest. The suite in `ruststream::conformance` (feature `conformance`) says whether an implementation is right.
//!
//! # What the runtime promises a transport
//!
//! - One `fetch` at a time, one `settle` or `renew` at a time; the two halves run side by side.
//! - Every delivery is settled exactly once, or its receipt is dropped because the process gave it up.
//! - `fetch` may be dropped at any await point; `settle`, `renew` and `publish` are driven to their end, save when the process
//!   is told to stop and their deadline passes.
//!
//! # What a transport promises the runtime
//!
//! - Every call ends or fails within a deadline of the transport's own; only `fetch` may wait for ever, and only for messages.
//!   A lost connection ends the wait with an error that [is transient](TransportError::is_transient).
//! - After a transient error, `recover` (or the next call) reconnects and sets up again whatever the server forgot.
//! - A receipt of a lost connection or lease never settles anything.

pub(crate) mod audience;
mod broker;
mod capabilities;
mod dead_letters;
mod delivery;
mod error;
mod fetch;
mod publish;
mod route;
mod secret;
mod settle;
mod verdict;

pub use audience::Audience;
pub use broker::{Broker, Connection, Source};
pub use capabilities::Capabilities;
pub use dead_letters::{DeadLetters, DeadMessage, ReplayAttempts};
pub use delivery::Delivery;
pub use error::{ErrorKind, PublishError, TransportError};
pub use fetch::Fetch;
pub use publish::Publish;
pub use route::{Routed, Routes};
pub(crate) use secret::hide_secrets;
pub use settle::{Settle, Settled};
pub use verdict::{DeadLetter, DeadReason, Verdict};
