//! What a batch handler says of its messages.

use super::{HandlerOutcome, IntoFailure, IntoOutcome, Outcome};

/// What a batch handler said: one outcome for all of its messages, or one for each.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchOutcome {
    /// The same for every message.
    All(Outcome),
    /// One for each message, in their order.
    Each(Vec<Outcome>),
}

/// What a batch handler may return.
#[diagnostic::on_unimplemented(
    message = "a batch handler cannot return `{Self}`",
    label = "this is neither one outcome for the batch nor a `Vec` of one for each message",
    note = "return `()`, `HandlerOutcome`, `Result<(), E>`, `Vec<HandlerOutcome>` or `Vec<Result<(), E>>`"
)]
pub trait IntoBatchOutcome {
    /// The outcomes that this value means.
    fn into_batch_outcome(self) -> BatchOutcome;
}

impl IntoBatchOutcome for () {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::All(Outcome::ACK)
    }
}

impl IntoBatchOutcome for HandlerOutcome {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::All(Outcome::Said(self))
    }
}

impl<T: IntoOutcome> IntoBatchOutcome for Vec<T> {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::Each(self.into_iter().map(IntoOutcome::into_outcome).collect())
    }
}

impl<T: IntoBatchOutcome, E: IntoFailure> IntoBatchOutcome for Result<T, E> {
    fn into_batch_outcome(self) -> BatchOutcome {
        match self {
            Ok(value) => value.into_batch_outcome(),
            Err(error) => BatchOutcome::All(error.into_failure()),
        }
    }
}
