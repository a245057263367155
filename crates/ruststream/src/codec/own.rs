//! A codec of one's own, behind `dyn`: `erased-serde` makes one type of every value.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::CodecError;

/// A format that RustStream does not bring, on top of any crate that speaks serde.
///
/// [`Codec::own`](super::Codec::own) makes a codec of it, which an app, a scope, a subscription or a publisher then uses. Each
/// message costs two dynamic calls more than with a codec that is built in.
///
/// # Examples
///
/// ```
/// use ruststream::codec::{Codec, CodecError, Given, OwnCodec, Wanted};
///
/// /// JSON for people: with line breaks.
/// #[derive(Debug)]
/// struct Pretty;
///
/// impl OwnCodec for Pretty {
///     fn content_type(&self) -> &'static str {
///         "application/vnd.pretty"
///     }
///
///     fn decode<'a>(&self, bytes: &'a [u8], wanted: Wanted<'_, 'a>) -> Result<(), CodecError> {
///         wanted.read(&mut serde_json::Deserializer::from_slice(bytes))
///     }
///
///     fn encode(&self, given: Given<'_>, into: &mut Vec<u8>) -> Result<(), CodecError> {
///         serde_json::to_writer_pretty(into, &given).map_err(|error| CodecError::new(error.to_string()))
///     }
/// }
///
/// let codec = Codec::own(Pretty);
/// let mut bytes = Vec::new();
/// codec.encode(&[1, 2], &mut bytes).unwrap();
/// assert_eq!(bytes, b"[\n  1,\n  2\n]");
/// assert_eq!(codec.decode::<Vec<u64>>(&bytes).unwrap(), [1, 2]);
/// ```
pub trait OwnCodec: fmt::Debug + Send + Sync + 'static {
    /// The media type written into `content-type`, and read.
    fn content_type(&self) -> &'static str;

    /// Reads the value that is wanted, which may borrow from `bytes`. Nothing should be left of them.
    ///
    /// # Errors
    ///
    /// Where the bytes are no such value.
    fn decode<'a>(&self, bytes: &'a [u8], wanted: Wanted<'_, 'a>) -> Result<(), CodecError>;

    /// Appends the value that is given to `into`.
    ///
    /// # Errors
    ///
    /// Where the value has no form in this codec.
    fn encode(&self, given: Given<'_>, into: &mut Vec<u8>) -> Result<(), CodecError>;
}

/// The place of a value that an [`OwnCodec`] is to read.
pub struct Wanted<'w, 'a> {
    read: &'w mut (dyn FnMut(&mut dyn erased_serde::Deserializer<'a>) -> Result<(), erased_serde::Error> + 'w),
}

impl<'a> Wanted<'_, 'a> {
    /// Reads the value by this deserializer.
    ///
    /// # Errors
    ///
    /// What the deserializer, or the type of the value, says against it.
    pub fn read<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), CodecError> {
        let mut erased = <dyn erased_serde::Deserializer<'a>>::erase(deserializer);
        (self.read)(&mut erased).map_err(|error| CodecError::new(error.to_string()))
    }
}

impl fmt::Debug for Wanted<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").finish_non_exhaustive()
    }
}

/// A value that an [`OwnCodec`] is to write: hand it to any serializer.
pub struct Given<'g> {
    value: &'g dyn erased_serde::Serialize,
}

impl Serialize for Given<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        erased_serde::serialize(self.value, serializer)
    }
}

impl fmt::Debug for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

pub(super) fn decode<'a, T: Deserialize<'a>>(codec: &dyn OwnCodec, bytes: &'a [u8]) -> Result<T, CodecError> {
    let mut value = None;
    let mut read = |deserializer: &mut dyn erased_serde::Deserializer<'a>| {
        value = Some(erased_serde::deserialize(deserializer)?);
        Ok(())
    };
    codec
        .decode(bytes, Wanted { read: &mut read })
        .map_err(|error| CodecError::undecodable::<T>(codec.content_type(), &error).with_cause(error))?;
    value.ok_or_else(|| CodecError::undecodable::<T>(codec.content_type(), "its codec read nothing"))
}

pub(super) fn encode<T: Serialize + ?Sized>(
    codec: &dyn OwnCodec,
    value: &T,
    into: &mut Vec<u8>,
) -> Result<(), CodecError> {
    codec
        .encode(Given { value: &value }, into)
        .map_err(|error| CodecError::unwritable::<T>(codec.content_type(), &error).with_cause(error))
}
