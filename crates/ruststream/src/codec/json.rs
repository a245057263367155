//! JSON, by `serde_json`.

use std::any::type_name;

use serde::{Deserialize, Serialize};

use super::CodecError;

pub(super) const CONTENT_TYPE: &str = "application/json";

/// True for JSON itself and the types built on it (RFC 6839, section 3.1).
pub(super) fn reads(media_type: &str) -> bool {
    media_type.eq_ignore_ascii_case(CONTENT_TYPE)
        || media_type.eq_ignore_ascii_case("text/json")
        || media_type.len() >= 5 && media_type.as_bytes()[media_type.len() - 5..].eq_ignore_ascii_case(b"+json")
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    serde_json::from_slice(bytes).map_err(|error| refused::<T>(error))
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
    serde_json::to_writer(into, value)
        .map_err(|error| CodecError::new(format!("{} has no form in JSON: {error}", type_name::<T>()), error))
}

#[cold]
fn refused<T>(error: serde_json::Error) -> CodecError {
    CodecError::new(
        format!("the payload is no {} in JSON: {error}", type_name::<T>()),
        error,
    )
}
