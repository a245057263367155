//! Why an operation failed, in the words of the transport.

use std::sync::Arc;

use ruststream::transport::{ErrorKind, TransportError};

/// Why a group of operations failed: copied to each of them.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    text: String,
    cause: Option<Arc<sqlx::Error>>,
    /// The connection is of no use any more: the next call opens a new one.
    pub(crate) lost: bool,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            cause: None,
            lost: false,
        }
    }

    pub(crate) fn lost(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            lost: true,
            ..Self::new(kind, text)
        }
    }

    /// The connection was closed by this process.
    pub(crate) fn closed(database: &str) -> Self {
        Self::new(
            ErrorKind::Closed,
            format!("the connection to {database} was closed by this process"),
        )
    }

    /// Keeps what caused it.
    pub(crate) fn with_cause(mut self, error: sqlx::Error) -> Self {
        self.cause = Some(Arc::new(error));
        self
    }
}

impl From<Failure> for TransportError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.kind, failure.text);
        match failure.cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}

/// Why a transaction did not come through.
pub(crate) enum Trouble {
    /// Others held what it needed all the time.
    Contended(Failure),
    /// Something in it was refused: without that, the rest may come through.
    Refused(Failure),
    /// The connection is gone.
    Lost(Failure),
}

impl Trouble {
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::Contended(failure) | Self::Refused(failure) | Self::Lost(failure) => failure,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        if failure.lost {
            Self::Lost(failure)
        } else {
            Self::Refused(failure)
        }
    }
}
