//! Protobuf, by `prost`.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use super::Message;
use crate::codec::{Codec, CodecError, Encode};
use crate::message::{HeaderMap, Incoming, header};

const NAME: &str = "protobuf";
const CONTENT_TYPE: &str = "application/x-protobuf";
/// What protobuf is called elsewhere.
const READS: &[&str] = &[CONTENT_TYPE, "application/protobuf", "application/vnd.google.protobuf"];

/// A protobuf message, by `prost`, whatever the codec of the app: as the message of a handler, as its reply, to publish.
///
/// It is written with the content type `application/x-protobuf`. One that comes without a content type is read as well; one
/// that comes with another is undecodable.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Order {
///     #[prost(uint64, tag = "1")]
///     id: u64,
/// }
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Receipt {
///     #[prost(uint64, tag = "1")]
///     order: u64,
/// }
///
/// #[subscriber("orders", reply = "receipts")]
/// async fn confirm(Proto(order): Proto<Order>) -> Proto<Receipt> {
///     Proto(Receipt { order: order.id })
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proto<T>(pub T);

impl<T> Deref for Proto<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Proto<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: prost::Message + Default> Message<'a> for Proto<T> {
    fn read(incoming: Incoming<'a>, _: &Codec) -> Result<Self, CodecError> {
        if let Some(content_type) = incoming.headers().get(header::CONTENT_TYPE) {
            let media_type = crate::codec::media_type(std::str::from_utf8(content_type).unwrap_or_default());
            if !READS.iter().any(|known| media_type.eq_ignore_ascii_case(known)) {
                return Err(CodecError::new(format!(
                    "the content type {:?} is not protobuf, which the handler takes; known: {CONTENT_TYPE}",
                    String::from_utf8_lossy(content_type)
                )));
            }
        }
        T::decode(incoming.payload())
            .map(Self)
            .map_err(|error| CodecError::undecodable::<T>(NAME, &error).with_cause(error))
    }
}

#[diagnostic::do_not_recommend]
impl<T: prost::Message> Encode for Proto<T> {
    fn encode(&self, _: &Codec, headers: &mut HeaderMap, payload: &mut Vec<u8>) -> Result<(), CodecError> {
        self.0
            .encode(payload)
            .map_err(|error| CodecError::unwritable::<T>(NAME, &error).with_cause(error))?;
        headers.insert(header::CONTENT_TYPE, Bytes::from_static(CONTENT_TYPE.as_bytes()));
        Ok(())
    }
}
