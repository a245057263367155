//! One message: how it is written for the server, and how it is read in hand.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes};
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::transport::{Delivery, ErrorKind, TransportError};

use crate::{error, wire};

/// A message in hand. It lends its bytes; its receipt is the number under which the server keeps it meanwhile.
#[derive(Debug)]
pub struct QueueDelivery {
    pub(crate) receipt: u64,
    attempt: u32,
    key: Option<Bytes>,
    headers: HeaderMap,
    payload: Bytes,
}

impl Delivery for QueueDelivery {
    type Receipt = u64;

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    fn into_receipt(self) -> u64 {
        self.receipt
    }
}

/// An entry of a publish request: the queue, then the body of key, headers and payload, which the server keeps as it is.
pub(crate) fn encode(message: &Outgoing<'_>) -> Result<Vec<u8>, TransportError> {
    error::check_name(message.destination())?;
    if !message.delay().is_zero() {
        let text = "this queue server keeps no message back; publish without a delay";
        return Err(TransportError::new(ErrorKind::Invalid, text));
    }
    let mut headers = Vec::new();
    message.headers().write_block(&mut headers);
    let key = message.key().unwrap_or_default();
    let size = key.len() + headers.len() + message.payload().len();
    if size > wire::BODY_LIMIT {
        let limit = wire::BODY_LIMIT;
        let text = format!("the message has {size} bytes; the queue server takes up to {limit}");
        return Err(TransportError::new(ErrorKind::TooLarge, text));
    }

    let mut body = vec![u8::from(message.key().is_some())];
    wire::put_part(&mut body, key);
    wire::put_part(&mut body, &headers);
    body.extend_from_slice(message.payload());

    let mut entry = Vec::new();
    wire::put_part(&mut entry, message.destination().as_bytes());
    wire::put_part(&mut entry, &body);
    Ok(entry)
}

/// All deliveries of an answer. Payloads and keys are windows into its frame, not copies.
pub(crate) fn decode(mut answer: Bytes) -> io::Result<VecDeque<QueueDelivery>> {
    let mut deliveries = VecDeque::new();
    while !answer.is_empty() {
        let receipt = answer.try_get_u64_le()?;
        let attempt = answer.try_get_u32_le()?;
        let mut body = wire::get_part(&mut answer)?;
        let has_key = body.try_get_u8()? == 1;
        let key = wire::get_part(&mut body)?;
        let headers = HeaderMap::from_block(&wire::get_part(&mut body)?);
        deliveries.push_back(QueueDelivery {
            receipt,
            attempt,
            key: has_key.then_some(key),
            headers: headers.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            payload: body,
        });
    }
    Ok(deliveries)
}
