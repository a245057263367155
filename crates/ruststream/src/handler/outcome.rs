//! What a handler says of a message, and what that means.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::codec::CodecError;
use crate::publish::Prepared;

/// What a handler can say of a message, where `Ok` and `Err` are not enough.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream::handler::HandlerOutcome;
///
/// fn judge(stock: u32) -> HandlerOutcome {
///     if stock == 0 { HandlerOutcome::retry_after(Duration::from_secs(30)) } else { HandlerOutcome::ack() }
/// }
/// # assert_eq!(judge(1), HandlerOutcome::ack());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerOutcome {
    /// Handled.
    Ack,
    /// To be tried again, as far as the retry policy has attempts left.
    Retry {
        /// The wait before the next attempt; the policy's backoff if `None`.
        after: Option<Duration>,
    },
    /// To be thrown away: neither handled nor kept.
    Drop,
    /// To be kept as a dead letter at once.
    DeadLetter {
        /// Why, for whoever finds it.
        reason: String,
    },
}

impl HandlerOutcome {
    /// Handled.
    pub const fn ack() -> Self {
        Self::Ack
    }

    /// To be tried again after the policy's backoff; a dead letter when the policy's attempts are used up.
    pub const fn retry() -> Self {
        Self::Retry { after: None }
    }

    /// To be tried again after `delay`; a dead letter when the policy's attempts are used up.
    pub const fn retry_after(delay: Duration) -> Self {
        Self::Retry { after: Some(delay) }
    }

    /// To be thrown away: neither handled nor kept.
    pub const fn drop() -> Self {
        Self::Drop
    }

    /// To be kept as a dead letter at once.
    pub fn dead_letter(reason: impl Into<String>) -> Self {
        Self::DeadLetter { reason: reason.into() }
    }
}

/// How one call of a handler ended, as the runtime sees it. Built by the conversions of this module.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler decided.
    Said(HandlerOutcome),
    /// Handled, once this reply is confirmed.
    Reply(Box<Prepared>),
    /// Handled, once all of these replies are confirmed.
    Replies(Vec<Box<Prepared>>),
    /// Not handled.
    Failed(Box<Failure>),
    /// The message could not be read.
    Undecodable(String),
}

impl Outcome {
    /// Handled.
    pub const ACK: Self = Self::Said(HandlerOutcome::Ack);
}

/// A message that cannot be decoded, with the reason.
impl From<CodecError> for Outcome {
    #[cold]
    fn from(error: CodecError) -> Self {
        Self::Undecodable(error.to_string())
    }
}

/// Why a call of a handler did not handle its message.
#[derive(Clone)]
pub struct Failure {
    kind: FailureKind,
    text: String,
    /// Shared by the messages of a batch that failed as one. An error need not be `Sync`, hence the lock.
    error: Option<Arc<Mutex<dyn Any + Send>>>,
}

/// The kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The handler or an extractor returned an error.
    Error,
    /// The handler, an extractor, a codec, or the drop of one of their values panicked.
    Panic,
    /// The handler took longer than its time-out.
    Timeout,
    /// The reply was not confirmed by the broker.
    Reply,
    /// A batch handler answered with another number of outcomes than it was given messages.
    WrongCount,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            error: None,
        }
    }

    /// A failure by `error`, whose text is kept with its causes where it prints them (`{:#}`).
    pub fn error<E: fmt::Display + Send + 'static>(error: E) -> Self {
        Self {
            kind: FailureKind::Error,
            text: format!("{error:#}"),
            error: Some(Arc::new(Mutex::new(error))),
        }
    }

    /// The kind.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The text of the error or the panic.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Shows the error to `look`, where it is an `E`: what a layer asks for that has to tell errors apart.
    ///
    /// # Examples
    ///
    /// ```
    /// use ruststream::handler::Failure;
    ///
    /// let failure = Failure::error(std::io::Error::from(std::io::ErrorKind::TimedOut));
    /// assert_eq!(failure.inspect(std::io::Error::kind), Some(std::io::ErrorKind::TimedOut));
    /// ```
    pub fn inspect<E: 'static, T>(&self, look: impl FnOnce(&E) -> T) -> Option<T> {
        self.with_cause(|cause| cause?.downcast_ref().map(look))
    }

    /// Shows the error to `look`, where there is one.
    pub(crate) fn with_cause<T>(&self, look: impl FnOnce(Option<&(dyn Any + Send)>) -> T) -> T {
        match &self.error {
            None => look(None),
            Some(error) => look(Some(&*error.lock().unwrap_or_else(PoisonError::into_inner))),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("kind", &self.kind)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

/// What may stand in a handler's `Err` and in an extractor's rejection: anything that prints, or an outcome.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a handler",
    note = "an error implements `Display` and is `Send + 'static`, as with `#[derive(thiserror::Error)]`, or is a `HandlerOutcome`"
)]
pub trait IntoFailure {
    /// The outcome that this error means.
    fn into_failure(self) -> Outcome;
}

#[diagnostic::do_not_recommend]
impl<E: fmt::Display + Send + 'static> IntoFailure for E {
    fn into_failure(self) -> Outcome {
        Outcome::Failed(Box::new(Failure::error(self)))
    }
}

#[diagnostic::do_not_recommend]
impl IntoFailure for Outcome {
    fn into_failure(self) -> Outcome {
        self
    }
}

#[diagnostic::do_not_recommend]
impl IntoFailure for HandlerOutcome {
    fn into_failure(self) -> Outcome {
        Outcome::Said(self)
    }
}

/// What a handler without a reply may return.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this is neither `()`, `HandlerOutcome` nor a `Result` of those",
    note = "to send it as a reply, name where it goes: `#[subscriber(\"…\", reply = \"…\")]`"
)]
pub trait IntoOutcome {
    /// The outcome that this value means.
    fn into_outcome(self) -> Outcome;
}

#[diagnostic::do_not_recommend]
impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::ACK
    }
}

#[diagnostic::do_not_recommend]
impl IntoOutcome for HandlerOutcome {
    fn into_outcome(self) -> Outcome {
        Outcome::Said(self)
    }
}

#[diagnostic::do_not_recommend]
impl<T: IntoOutcome, E: IntoFailure> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => error.into_failure(),
        }
    }
}
