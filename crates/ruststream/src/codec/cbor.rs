//! CBOR (RFC 8949), by `cbor4ii`, which lends texts and bytes from the payload and bounds how deep a payload may nest.

use cbor4ii::core::dec::Read;
use cbor4ii::core::utils::{BufWriter, SliceReader};
use cbor4ii::serde::{DecodeError, Deserializer, EncodeError, Serializer};
use serde::{Deserialize, Serialize};

use super::CodecError;

pub(super) const NAME: &str = "CBOR";
pub(super) const CONTENT_TYPE: &str = "application/cbor";
pub(super) const READS: &[&str] = &[CONTENT_TYPE, "+cbor"];

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    let mut deserializer = Deserializer::new(SliceReader::new(bytes));
    let value = T::deserialize(&mut deserializer).map_err(|error| match error {
        DecodeError::Custom(text) => CodecError::undecodable::<T>(NAME, text),
        error @ DecodeError::Core(_) => CodecError::undecodable::<T>(NAME, &error).with_cause(error.to_string()),
    })?;
    let mut reader = deserializer.into_inner();
    let Ok(rest) = reader.fill(1);
    if rest.as_ref().is_empty() {
        Ok(value)
    } else {
        Err(CodecError::undecodable::<T>(NAME, super::TRAILING))
    }
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
    let mut serializer = Serializer::new(BufWriter::new(std::mem::take(into)));
    let written = value.serialize(&mut serializer);
    *into = serializer.into_inner().into_inner();
    written.map_err(|error| match error {
        EncodeError::Custom(text) => CodecError::unwritable::<T>(NAME, text),
        error @ EncodeError::Core(_) => CodecError::unwritable::<T>(NAME, &error),
    })
}
