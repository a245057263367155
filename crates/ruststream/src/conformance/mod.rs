//! The suite that says whether a transport is right.
//!
//! A transport crate implements [`Harness`] for its tests and has the whole suite with one line; every check becomes a test
//! of its own:
//!
//! ```
//! use ruststream::conformance::Harness;
//! use ruststream::memory::MemoryBroker;
//!
//! struct Memory(MemoryBroker);
//!
//! impl Harness for Memory {
//!     type Broker = MemoryBroker;
//!
//!     async fn start() -> Self {
//!         Self(MemoryBroker::new())
//!     }
//!
//!     fn broker(&self) -> MemoryBroker {
//!         self.0.clone()
//!     }
//! }
//!
//! ruststream::conformance::suite!(Memory);
//! ```
//!
//! The [`checks`] are functions that answer a [`Violation`], so that one can also be run alone, and against a transport that is
//! broken on purpose: a check that nothing can fail proves nothing. What a transport
//! [declares](crate::transport::Capabilities) it does itself is checked; what it does not declare passes unseen.

mod book;
pub mod checks;
mod harness;
mod rig;
mod service;
mod suite;
mod tally;
mod violation;

pub use crate::conformance_suite as suite;
pub use harness::{Features, Harness, unique_name};
pub use suite::{report, run};
pub use violation::Violation;
