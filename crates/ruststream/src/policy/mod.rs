//! What happens to a message that was not handled: retries, backoff, dead letters.

mod backoff;
mod retry;

pub use backoff::Backoff;
pub use retry::Retry;
pub(crate) use retry::RetryRules;
