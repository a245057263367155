//! Handlers: what a `#[subscriber]` function receives, returns, and becomes.

mod batch;
mod call;
mod context;
mod envelope;
mod extension;
mod extract;
mod headers;
mod layers;
mod message;
mod outcome;
#[cfg(feature = "prost")]
mod proto;
mod pump;
mod reply;
mod subscriber;
#[cfg(feature = "garde")]
mod valid;

pub use batch::{Batch, BatchOutcome, IntoBatchOutcome};
pub use call::{Call, Scope};
pub use context::Context;
pub use envelope::Envelope;
pub use extension::{Extended, Extension};
pub use extract::{BatchParameter, Extract, ExtractBatch, FromState, Parameter, Parameters, State};
pub use headers::Headers;
pub use layers::{Layer, Layers, Mounting, Stack};
pub use message::Message;
pub use outcome::{Failure, FailureKind, HandlerOutcome, IntoFailure, IntoOutcome, Outcome};
#[cfg(feature = "prost")]
pub use proto::Proto;
pub use reply::{Replies, Reply};
pub(crate) use subscriber::Included;
pub use subscriber::{Batched, Definition, Handler, IntoReply, Single, Subscriber};
#[cfg(feature = "garde")]
pub use valid::Valid;

pub(crate) use call::Cancel;
pub(crate) use pump::{Desk, Ended, Hand, InHand, Interrupt, Patience, WorkerFacts, panic_text};
