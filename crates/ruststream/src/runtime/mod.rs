//! The dispatch loop of one subscription: fetch, decode, handle, reply, settle.
//!
//! ```text
//!  Fetch ──► fetcher ──► buffer ──► worker × n ──► finished ──► settler ──► Publish, Settle
//!                          ▲           │  (Pump: the handler, erased)
//!                          └─ holder ◄─┘  retries kept in hand, lanes of ordered keys
//! ```
//!
//! Each box is one long-lived future, generic over the transport and not over the handler. They meet in the buffer, whose locks
//! are taken per chunk and not per message, so that what waits is handed on in groups.

mod buffer;
mod entry;
mod fetcher;
mod judge;
mod observer;
mod queue;
mod ready;
mod room;
mod settings;
mod settler;
mod shared;
mod slot;
mod subscription;
mod worker;

#[cfg(feature = "testing")]
pub(crate) use observer::{End, Observer};
pub(crate) use settings::{Batch, LONGEST, Settings};
pub(crate) use shared::{Phase, Shared, Signals, chain};
pub(crate) use subscription::run;
