//! Why a request has no answer.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::codec::CodecError;
use crate::transport::PublishError;

/// Why a request has no answer.
#[derive(Debug)]
pub struct RequestError {
    reason: Box<Reason>,
}

#[derive(Debug)]
enum Reason {
    Unpublished(PublishError),
    TimedOut { destination: String, after: Duration },
    Closed { destination: String },
    Undecodable { destination: String, error: CodecError },
    Unread { destination: String },
}

impl RequestError {
    fn new(reason: Reason) -> Self {
        Self {
            reason: Box::new(reason),
        }
    }

    pub(super) fn unpublished(error: PublishError) -> Self {
        Self::new(Reason::Unpublished(error))
    }

    pub(super) fn timed_out(destination: String, after: Duration) -> Self {
        Self::new(Reason::TimedOut { destination, after })
    }

    pub(super) fn closed(destination: String) -> Self {
        Self::new(Reason::Closed { destination })
    }

    pub(super) fn undecodable(destination: String, error: CodecError) -> Self {
        Self::new(Reason::Undecodable { destination, error })
    }

    pub(super) fn unread(destination: String) -> Self {
        Self::new(Reason::Unread { destination })
    }

    /// True where no answer came in time. The request may have been handled all the same.
    pub fn is_timeout(&self) -> bool {
        matches!(*self.reason, Reason::TimedOut { .. })
    }

    /// True where the app has shut down, so that no answer can come any more. The request may have been handled all the same.
    pub fn is_closed(&self) -> bool {
        matches!(*self.reason, Reason::Closed { .. })
    }

    /// True where the broker did not confirm the request; the [source](Error::source) says why.
    pub fn is_unpublished(&self) -> bool {
        matches!(*self.reason, Reason::Unpublished(_))
    }

    /// True where an answer came and could not be read as what was asked for.
    pub fn is_undecodable(&self) -> bool {
        matches!(*self.reason, Reason::Undecodable { .. } | Reason::Unread { .. })
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.reason {
            Reason::Unpublished(error) => write!(f, "the request was not sent: {}", error.first()),
            Reason::TimedOut { destination, after } => write!(
                f,
                "no answer from `{destination}` within {after:?}; is it read by a handler with a reply?"
            ),
            Reason::Closed { destination } => write!(
                f,
                "the app has shut down, and with it the place where the answer from `{destination}` was awaited"
            ),
            Reason::Undecodable { destination, error } => {
                write!(f, "the answer from `{destination}` could not be read: {error}")
            }
            Reason::Unread { destination } => {
                write!(f, "reading the answer from `{destination}` panicked")
            }
        }
    }
}

impl Error for RequestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.reason {
            Reason::Unpublished(error) => Some(error),
            Reason::Undecodable { error, .. } => Some(error),
            Reason::TimedOut { .. } | Reason::Closed { .. } | Reason::Unread { .. } => None,
        }
    }
}
