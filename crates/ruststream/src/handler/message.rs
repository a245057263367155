//! What the first parameter of a handler can be.

use serde::Deserialize;

use crate::codec::{Codec, CodecError};
use crate::message::Incoming;

/// What the first parameter of a handler can be: everything that is read by a codec, and types that read themselves.
///
/// Every `Deserialize` type has it, also one that borrows from the payload. The counterpart for what is published is
/// [`Encode`](crate::codec::Encode).
///
/// One subscription takes several types of message as an enum. Where its variants are told apart by what is in the payload,
/// serde's own `tag` does it; where a header tells them apart, `#[derive(Message)]` does:
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Deserialize)]
/// struct Placed { id: u64 }
///
/// #[derive(Deserialize)]
/// struct Cancelled { id: u64, reason: String }
///
/// #[derive(Message)]
/// #[message(header = "kind")]
/// enum OrderEvent {
///     #[message("placed")]
///     Placed(Placed),
///     #[message("cancelled")]
///     Cancelled(Cancelled),
/// }
///
/// #[subscriber("orders")]
/// async fn follow(event: OrderEvent) {
///     match event {
///         OrderEvent::Placed(Placed { id }) => println!("{id} is placed"),
///         OrderEvent::Cancelled(Cancelled { id, reason }) => println!("{id} is cancelled: {reason}"),
///     }
/// }
/// ```
///
/// A format of one's own reads the payload itself:
///
/// ```
/// use ruststream::codec::{Codec, CodecError};
/// use ruststream::handler::Message;
/// use ruststream::message::Incoming;
///
/// /// A reading of a sensor, as the sensor writes it.
/// struct Reading(u16);
///
/// impl<'a> Message<'a> for Reading {
///     fn read(incoming: Incoming<'a>, _: &Codec) -> Result<Self, CodecError> {
///         match *incoming.payload() {
///             [high, low] => Ok(Self(u16::from_be_bytes([high, low]))),
///             ref other => Err(CodecError::new(format!("a reading has 2 bytes, not {}", other.len()))),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the message of a handler",
    label = "not `Deserialize`: derive it; for the bytes as they came, take `&[u8]`; for a protobuf message, `Proto<{Self}>`"
)]
pub trait Message<'a>: Sized {
    /// Reads it from a message. `codec` is that of the subscription, for a payload that does not say what it is.
    ///
    /// # Errors
    ///
    /// Where the message is no such value: it is then undecodable, and the handler is not called.
    fn read(incoming: Incoming<'a>, codec: &Codec) -> Result<Self, CodecError>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Deserialize<'a>> Message<'a> for T {
    #[inline]
    fn read(incoming: Incoming<'a>, codec: &Codec) -> Result<Self, CodecError> {
        codec.honouring(incoming.headers())?.decode(incoming.payload())
    }
}
