//! Handlers: what a `#[subscriber]` function receives, returns, and becomes.

mod batch;
mod call;
mod context;
mod extract;
mod layers;
mod outcome;
mod pump;
mod subscriber;

pub use batch::{Batch, BatchOutcome, IntoBatchOutcome};
pub use call::{Call, Scope};
pub use context::Context;
pub use extract::{Extract, FromState, State};
pub use layers::{Layer, Layers, Mounting, Stack};
pub use outcome::{Failure, FailureKind, HandlerOutcome, IntoFailure, IntoOutcome, Outcome};
pub use subscriber::{Batched, Definition, Handler, IntoReply, Message, Single, Subscriber};

pub(crate) use call::Cancel;
pub(crate) use pump::{Desk, Ended, Hand, InHand, Interrupt, panic_text};
