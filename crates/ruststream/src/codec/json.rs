//! JSON, by `serde_json`.

use serde::{Deserialize, Serialize};

use super::CodecError;

pub(super) const NAME: &str = "JSON";
pub(super) const CONTENT_TYPE: &str = "application/json";
/// JSON itself and the types built on it (RFC 6839, section 3.1).
pub(super) const READS: &[&str] = &[CONTENT_TYPE, "text/json", "+json"];

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    // Asked once for the whole payload, UTF-8 is cheaper than asked for each text in it.
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            serde_json::from_str(text).map_err(|error| CodecError::undecodable::<T>(NAME, &error).with_cause(error))
        }
        Err(error) => Err(CodecError::undecodable::<T>(NAME, error).with_cause(error)),
    }
}

#[inline]
pub(super) fn encode<T: Serialize + ?Sized>(value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
    serde_json::to_writer(into, value).map_err(|error| CodecError::unwritable::<T>(NAME, &error).with_cause(error))
}
