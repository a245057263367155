//! Why bytes are no message, or a message has no bytes.

use std::error::Error;
use std::fmt;

/// Why bytes are no message, or a message has no bytes.
#[derive(Debug)]
pub struct CodecError {
    text: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl CodecError {
    /// An error that reads so.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            cause: None,
        }
    }

    /// Sets the error behind it.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// A payload that is no `T`.
    #[cold]
    pub(crate) fn undecodable<T: ?Sized>(format: &str, why: impl fmt::Display) -> Self {
        Self::new(format!(
            "the payload is no {} in {format}: {why}",
            std::any::type_name::<T>()
        ))
    }

    /// A `T` that cannot be written.
    #[cold]
    pub(crate) fn unwritable<T: ?Sized>(format: &str, why: impl fmt::Display) -> Self {
        Self::new(format!("{} has no form in {format}: {why}", std::any::type_name::<T>()))
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for CodecError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
