//! What can go wrong between the runtime and a broker.

use std::error::Error;
use std::fmt;

use super::hide_secrets;

type Cause = Box<dyn Error + Send + Sync>;

/// An error of a transport: what happened, to what, and whether trying again can help.
///
/// The text names the thing, the value and the fix; the client library's error is kept as [`source`](Error::source).
pub struct TransportError {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    cause: Option<Cause>,
}

/// The kinds of [`TransportError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server is absent, or the link to it broke. Passing.
    Unavailable,
    /// The server did not answer in time. Passing.
    Timeout,
    /// The server answers but cannot take the work now: busy, locked, disk full. Passing.
    Busy,
    /// A setting or a name is wrong. Stays wrong until someone changes it.
    Invalid,
    /// Credentials or rights are missing. Stays so until someone changes it.
    Denied,
    /// What the server holds is not what this version of the crate expects. Stays so until someone changes it.
    Incompatible,
    /// The message is larger than the transport takes.
    TooLarge,
    /// No one would get the message: there is no such destination.
    Unroutable,
    /// The broker refused the message.
    Refused,
    /// The connection was closed by this process.
    Closed,
}

impl TransportError {
    /// An error of this kind; `message` says what happened, to what, and what to do about it. The passwords of URLs in it are
    /// not shown.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                message: hide_secrets(message.into()),
                cause: None,
            }),
        }
    }

    /// Keeps what caused it.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.inner.cause = Some(cause.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// True where the same call may succeed later without anyone changing a setting.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Busy
        )
    }

    /// True where a message was larger than the transport takes.
    pub fn is_too_large(&self) -> bool {
        self.inner.kind == ErrorKind::TooLarge
    }

    /// True where no one would get a message.
    pub fn is_unroutable(&self) -> bool {
        self.inner.kind == ErrorKind::Unroutable
    }

    /// True where a deadline passed.
    pub fn is_timeout(&self) -> bool {
        self.inner.kind == ErrorKind::Timeout
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportError")
            .field("kind", &self.inner.kind)
            .field("message", &self.inner.message)
            .field("cause", &self.inner.cause)
            .finish()
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.cause.as_deref().map(|cause| cause as _)
    }
}

/// Which messages of a publish were not confirmed, and why.
#[derive(Debug)]
pub struct PublishError {
    failures: Failures,
}

#[derive(Debug)]
enum Failures {
    All(TransportError),
    /// Positions in ascending order; never empty.
    Some(Vec<(usize, TransportError)>),
}

impl PublishError {
    /// None of the messages was confirmed.
    pub fn all(error: TransportError) -> Self {
        Self {
            failures: Failures::All(error),
        }
    }

    /// The messages at these positions were not confirmed, all others were. `None` if there is none.
    #[inline]
    pub fn some(mut failures: Vec<(usize, TransportError)>) -> Option<Self> {
        if failures.is_empty() {
            return None;
        }
        failures.sort_by_key(|(position, _)| *position);
        Some(Self {
            failures: Failures::Some(failures),
        })
    }

    /// Why the message at `position` was not confirmed; `None` where it was.
    pub fn for_message(&self, position: usize) -> Option<&TransportError> {
        match &self.failures {
            Failures::All(error) => Some(error),
            Failures::Some(failures) => failures
                .binary_search_by_key(&position, |(failed, _)| *failed)
                .ok()
                .map(|index| &failures[index].1),
        }
    }

    /// The first failure.
    pub fn first(&self) -> &TransportError {
        match &self.failures {
            Failures::All(error) => error,
            Failures::Some(failures) => &failures[0].1,
        }
    }
}

impl From<TransportError> for PublishError {
    fn from(error: TransportError) -> Self {
        Self::all(error)
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message was not published: {}", self.first())
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.first().source()
    }
}
