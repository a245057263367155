//! What a check finds wrong.

use std::fmt;

/// What a transport did against the contract: what was to happen, and what did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    text: String,
}

impl Violation {
    /// A violation that reads as `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}

/// Returns a [`Violation`] from the check where the condition is false.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Violation::new(format!($($text)+)));
        }
    };
}
pub(super) use ensure;
