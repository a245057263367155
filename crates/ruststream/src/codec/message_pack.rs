//! MessagePack, by `rmp-serde`: structs as maps with the names of their fields, so that fields may be added and left out.

use rmp_serde::Deserializer;
use rmp_serde::decode::{Error, ReadRefReader};
use serde::{Deserialize, Serialize};

use super::{CodecError, DEEPEST};

pub(super) const NAME: &str = "MessagePack";
pub(super) const CONTENT_TYPE: &str = "application/msgpack";
pub(super) const READS: &[&str] = &[
    CONTENT_TYPE,
    "application/vnd.msgpack",
    "application/x-msgpack",
    "+msgpack",
];

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    let mut deserializer: Deserializer<ReadRefReader<'a, [u8]>> = Deserializer::from_read_ref(bytes);
    deserializer.set_max_depth(DEEPEST);
    let value = T::deserialize(&mut deserializer)
        .map_err(|error| CodecError::undecodable::<T>(NAME, &error).with_cause(error))?;
    // The reader does not tell what is left of the payload, but that no marker is left to read, it does.
    match <()>::deserialize(&mut deserializer) {
        Err(Error::InvalidMarkerRead(_)) => Ok(value),
        _ => Err(CodecError::undecodable::<T>(NAME, super::TRAILING)),
    }
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
    rmp_serde::encode::write_named(into, value)
        .map_err(|error| CodecError::unwritable::<T>(NAME, &error).with_cause(error))
}
