//! How messages become bytes and come back.

mod json;

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How messages become bytes and come back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// JSON, by `serde_json`.
    #[default]
    Json,
}

impl Codec {
    /// The media type written into `content-type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => json::CONTENT_TYPE,
        }
    }

    /// The codec for a media type, parameters (`; charset=utf-8`) ignored; `None` for one that none of them reads.
    pub fn for_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        json::reads(media_type).then_some(Self::Json)
    }

    /// Reads a value, which may borrow from `bytes`.
    ///
    /// # Errors
    ///
    /// Where the bytes are no such value; the text says where and why.
    pub fn decode<'a, T: Deserialize<'a>>(self, bytes: &'a [u8]) -> Result<T, CodecError> {
        match self {
            Self::Json => json::decode(bytes),
        }
    }

    /// Appends `value` to `into`.
    ///
    /// # Errors
    ///
    /// Where the value has no form in this codec: JSON has none for a map whose keys are no text.
    pub fn encode<T: Serialize + ?Sized>(self, value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Json => json::encode(value, into),
        }
    }
}

/// Why bytes are no message, or a message has no bytes.
#[derive(Debug)]
pub struct CodecError {
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl CodecError {
    fn new(message: String, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            message,
            cause: Some(cause.into()),
        }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CodecError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
