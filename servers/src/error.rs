//! What can go wrong: one kind of error, since nobody here asks more of it than its text.

use std::fmt;

/// A server could not be installed, started or reached; the text says which and what to do.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Wraps an error of the system with what was attempted.
    pub(crate) fn during(what: impl fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
