//! What can be published.

use serde::Serialize;

use super::{Codec, CodecError};
use crate::message::{HeaderMap, header};

/// What can be published and replied: everything that a codec can write, and types with a wire format of their own.
///
/// Every `Serialize` type has it. The counterpart for what is received is [`Message`](crate::handler::Message).
///
/// # Examples
///
/// ```
/// use ruststream::codec::{Codec, CodecError, Encode};
/// use ruststream::message::{HeaderMap, header};
///
/// /// A reading of a sensor, as the sensor writes it.
/// struct Reading(u16);
///
/// impl Encode for Reading {
///     fn encode(&self, _: &Codec, headers: &mut HeaderMap, payload: &mut Vec<u8>) -> Result<(), CodecError> {
///         headers.insert(header::CONTENT_TYPE, "application/vnd.reading");
///         payload.extend_from_slice(&self.0.to_be_bytes());
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be published",
    label = "not `Serialize`: derive it; bytes as they are go by `publish_bytes`, a protobuf message as `&Proto(message)`"
)]
pub trait Encode {
    /// Appends the payload to `payload`, and sets the headers that say what it is. `codec` is the one that was chosen where the
    /// message is published.
    ///
    /// # Errors
    ///
    /// Where the value has no form in the codec or the format.
    fn encode(&self, codec: &Codec, headers: &mut HeaderMap, payload: &mut Vec<u8>) -> Result<(), CodecError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Encode for T {
    fn encode(&self, codec: &Codec, headers: &mut HeaderMap, payload: &mut Vec<u8>) -> Result<(), CodecError> {
        codec.encode(self, payload)?;
        headers.insert_static(header::CONTENT_TYPE, codec.content_type());
        Ok(())
    }
}
