//! The lesson "write your own transport": a queue server of our own, and RustStream on it.
//!
//! Read in this order:
//!
//! 1. [`server`]: what the server does, and what it does not do: no delays, no dead letters, no leases;
//! 2. `wire`: how bytes travel, and why a read may be dropped at any moment;
//! 3. [`transport`]: the traits of `ruststream::transport`, top to bottom, with the reason of each decision; `delivery` and
//!    `error` hold what it needs beside;
//! 4. `tests/transport.rs`: how to drive a transport by hand while it is being written.
//!
//! A transport is written once it passes the suite in `ruststream::conformance`. What this server cannot do, the runtime
//! supplies: it holds a message back until its retry is due, and it publishes dead letters to a queue beside.

mod delivery;
mod error;
pub mod server;
pub mod transport;
mod wire;

pub use delivery::QueueDelivery;
pub use server::{Server, Store};
pub use transport::QueueBroker;
