//! A message as one value: of a list, or sent to a channel.
//!
//! A message without headers and key is its payload, so that any client can write one and read one. Others begin with four bytes that
//! no text does, the length of the headers as a little-endian `u32`, and the headers as `HeaderMap::write_block` has them; the
//! payload is the rest.

use std::borrow::Cow;

use bytes::Bytes;
use ruststream::message::{HeaderMap, Outgoing, header};

use crate::message::known_name;

/// What a value with headers begins with.
const MAGIC: &[u8; 4] = b"\0RS1";

/// Writes a message behind `before`.
pub(crate) fn write(message: &Outgoing<'_>, before: &[u8]) -> Bytes {
    let payload = message.payload();
    let is_plain = message.headers().is_empty() && message.key().is_none() && !payload.starts_with(MAGIC);
    if is_plain {
        if before.is_empty() {
            return Bytes::copy_from_slice(payload);
        }
        return Bytes::from([before, payload].concat());
    }
    let mut value = Vec::with_capacity(before.len() + 64 + message.headers().size() + payload.len());
    value.extend_from_slice(before);
    value.extend_from_slice(MAGIC);
    let length_at = value.len();
    value.extend_from_slice(&[0; 4]);
    if let Some(key) = message.key() {
        put(&mut value, header::KEY.as_bytes());
        put(&mut value, key);
    }
    for (name, content) in message.headers().iter() {
        if name == header::KEY && message.key().is_some() {
            continue;
        }
        put(&mut value, name.as_bytes());
        put(&mut value, content);
    }
    let length = u32::try_from(value.len() - length_at - 4).unwrap_or(u32::MAX);
    value[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    value.extend_from_slice(payload);
    Bytes::from(value)
}

/// Writes headers as a block that can be put behind another.
pub(crate) fn block(headers: &[(&'static str, String)]) -> Bytes {
    let mut block = Vec::new();
    for (name, content) in headers {
        put(&mut block, name.as_bytes());
        put(&mut block, content.as_bytes());
    }
    Bytes::from(block)
}

fn put(value: &mut Vec<u8>, part: &[u8]) {
    value.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    value.extend_from_slice(part);
}

/// Reads a value; nothing is copied. One that only looks like it has headers is a payload.
pub(crate) fn read(value: &Bytes) -> (Bytes, HeaderMap) {
    let mut headers = HeaderMap::new();
    match headers_of(value, &mut headers) {
        Some(payload) => (payload, headers),
        None => (value.clone(), HeaderMap::new()),
    }
}

fn headers_of(value: &Bytes, headers: &mut HeaderMap) -> Option<Bytes> {
    let rest = value.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let start = value.len() - rest.len();
    let end = start.checked_add(length)?;
    if end > value.len() {
        return None;
    }
    let mut at = start;
    while at < end {
        let name = part(value, &mut at, end)?;
        let content = part(value, &mut at, end)?;
        let name = match known_name(&name) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(std::str::from_utf8(&name).ok()?.to_owned()),
        };
        headers.append(name, content);
    }
    Some(value.slice(end..))
}

fn part(value: &Bytes, at: &mut usize, end: usize) -> Option<Bytes> {
    let length = value.get(*at..*at + 4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let start = *at + 4;
    let stop = start.checked_add(length)?;
    if stop > end {
        return None;
    }
    *at = stop;
    Some(value.slice(start..stop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_payload_is_the_value_itself() {
        let message = Outgoing::new("jobs", b"{\"id\":7}");
        assert_eq!(write(&message, b""), "{\"id\":7}");
        assert_eq!(write(&message, b"0123"), "0123{\"id\":7}");
        assert_eq!(read(&Bytes::from("{\"id\":7}")).0, "{\"id\":7}");
    }

    #[test]
    fn every_payload_and_header_survives() {
        let mut headers = HeaderMap::new();
        headers.append(header::CONTENT_TYPE, "application/json");
        headers.append("trace", vec![0xff, 0]);
        headers.append("trace", "2");
        for payload in [&b""[..], b"\0RS1", b"\0RS1\xff\xff\xff\xff", b"x", &[7; 10_000]] {
            let message = Outgoing::new("jobs", payload).with_headers(&headers);
            let (read_payload, read_headers) = read(&write(&message, b""));
            assert_eq!(read_payload, payload);
            assert_eq!(read_headers, headers);
            let (read_payload, read_headers) = read(&write(&Outgoing::new("jobs", payload), b""));
            assert_eq!((&read_payload[..], read_headers), (payload, HeaderMap::new()));
        }
    }

    #[test]
    fn values_of_others_that_look_alike_are_payloads() {
        for value in [&b"\0RS1"[..], b"\0RS1\x05\0\0\0abc", b"\0RS1\x04\0\0\0\xff\xff\xff\xff"] {
            let (payload, headers) = read(&Bytes::from_static(value));
            assert_eq!(payload, value);
            assert!(headers.is_empty());
        }
    }
}
