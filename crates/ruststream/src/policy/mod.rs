//! What happens to a message that was not handled, and which messages keep their order.

mod backoff;
mod order;
mod retry;

pub use backoff::Backoff;
pub use order::OrderBy;
pub use retry::Retry;
pub(crate) use retry::RetryRules;

/// What happens to a message whose payload or headers cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnUndecodable {
    /// It is kept as a dead letter at once, bytes untouched: trying again would not help.
    #[default]
    DeadLetter,
    /// It is retried like an error, for a service whose next version will read it.
    Retry,
    /// It is thrown away and counted.
    Drop,
}
