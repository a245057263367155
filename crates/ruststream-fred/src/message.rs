//! A message as the fields of a stream entry, and back.
//!
//! The field `payload` holds the payload; every other field is a header of its name. So `XADD orders * payload '{"id":7}' region eu`
//! from any client makes a message, and what this crate writes can be read by eye. A header that is itself called `payload`, or
//! begins with `header:`, stands behind the prefix `header:`.

use std::borrow::Cow;

use bytes::Bytes;
use fred::interfaces::Resp3Frame as Frame;
use fred::types::{Key, Value};
use ruststream::message::{HeaderMap, Outgoing, header};

use crate::error::Failure;
use crate::reply;

/// The field that holds the payload.
const PAYLOAD: &str = "payload";

/// What stands before header names that would be taken for something else.
const PREFIX: &str = "header:";

/// What came as fields.
pub(crate) struct Fields {
    pub(crate) payload: Bytes,
    pub(crate) headers: HeaderMap,
}

/// Reads the fields of an entry. Names that are no text are kept as well as text can.
pub(crate) fn read(fields: Frame) -> Result<Fields, Failure> {
    let parts = reply::parts(fields, "the fields of an entry")?;
    let mut payload = None;
    let mut headers = HeaderMap::new();
    let mut parts = parts.into_iter();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let name = reply::bytes(name, "the name of a field")?;
        let value = reply::bytes(value, "the value of a field")?;
        if payload.is_none() && name == PAYLOAD.as_bytes() {
            payload = Some(value);
        } else {
            headers.append(header_of(&name), value);
        }
    }
    Ok(Fields {
        payload: payload.unwrap_or_default(),
        headers,
    })
}

/// Writes the fields of an entry, one name and one value after the other.
pub(crate) fn write(message: &Outgoing<'_>, mut put: impl FnMut(Cow<'_, str>, &[u8])) {
    put(Cow::Borrowed(PAYLOAD), message.payload());
    if let Some(key) = message.key() {
        put(Cow::Borrowed(header::KEY), key);
    }
    for (name, value) in message.headers().iter() {
        if name == header::KEY && message.key().is_some() {
            continue;
        }
        put(field_of(name), value);
    }
}

/// The fields as names and values.
pub(crate) fn fields(message: &Outgoing<'_>) -> Vec<(Key, Value)> {
    let mut fields = Vec::with_capacity(1 + message.headers().len() + usize::from(message.key().is_some()));
    write(message, |name, value| {
        let name = match name {
            Cow::Borrowed(PAYLOAD) => Key::from_static_str(PAYLOAD),
            name => Key::from(Bytes::copy_from_slice(name.as_bytes())),
        };
        fields.push((name, Value::Bytes(Bytes::copy_from_slice(value))));
    });
    fields
}

/// Packs the fields into one value, an array of MessagePack that scripts unpack, behind a number that makes it unique.
pub(crate) fn pack(message: &Outgoing<'_>, unique: u64) -> Bytes {
    let mut packed = Vec::with_capacity(message.payload().len() + message.headers().size() + 64);
    let mut parts = 1;
    write(message, |_, _| parts += 2);
    packed.push(0xdd);
    packed.extend_from_slice(&u32::try_from(parts).unwrap_or(u32::MAX).to_be_bytes());
    put_text(&mut packed, format!("{unique:016x}").as_bytes());
    write(message, |name, value| {
        put_text(&mut packed, name.as_bytes());
        put_text(&mut packed, value);
    });
    Bytes::from(packed)
}

/// A string of up to 4 GiB: <https://github.com/msgpack/msgpack/blob/master/spec.md#str-format-family>.
fn put_text(packed: &mut Vec<u8>, text: &[u8]) {
    packed.push(0xdb);
    packed.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    packed.extend_from_slice(text);
}

fn field_of(name: &str) -> Cow<'_, str> {
    if name == PAYLOAD || name.starts_with(PREFIX) {
        Cow::Owned(format!("{PREFIX}{name}"))
    } else {
        Cow::Borrowed(name)
    }
}

fn header_of(field: &[u8]) -> Cow<'static, str> {
    if let Some(known) = known_name(field) {
        return Cow::Borrowed(known);
    }
    let name = String::from_utf8_lossy(field);
    Cow::Owned(name.strip_prefix(PREFIX).unwrap_or(&name).to_owned())
}

/// The names that nearly every message bears, which need no copy.
pub(crate) fn known_name(name: &[u8]) -> Option<&'static str> {
    [
        header::CONTENT_TYPE,
        header::MESSAGE_ID,
        header::KEY,
        header::CORRELATION_ID,
        header::REPLY_TO,
        header::TRACE_PARENT,
        header::TRACE_STATE,
    ]
    .into_iter()
    .find(|known| name == known.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(bytes: &[u8]) -> Frame {
        Frame::BlobString {
            data: Bytes::copy_from_slice(bytes),
            attributes: None,
        }
    }

    fn there_and_back(message: &Outgoing<'_>) -> Fields {
        let mut data = Vec::new();
        write(message, |name, value| {
            data.push(blob(name.as_bytes()));
            data.push(blob(value));
        });
        assert_eq!(data.len(), 2 * fields(message).len());
        read(Frame::Array { data, attributes: None }).unwrap()
    }

    #[test]
    fn every_header_survives_also_one_called_payload() {
        let mut headers = HeaderMap::new();
        headers.append("payload", "not this");
        headers.append("header:x", "1");
        headers.append("trace", vec![0xff]);
        headers.append("trace", "2");
        headers.append("", "nameless");
        let read = there_and_back(&Outgoing::new("orders", b"this").with_headers(&headers));
        assert_eq!(read.payload, "this");
        assert_eq!(read.headers, headers);
    }

    #[test]
    fn a_key_is_a_header_once() {
        let mut headers = HeaderMap::new();
        headers.append(header::KEY, "from a header");
        let message = Outgoing::new("orders", b"").with_headers(&headers).with_key(b"own");
        let mut names = 0;
        write(&message, |name, value| {
            if name == header::KEY {
                names += 1;
                assert_eq!(value, b"own");
            }
        });
        assert_eq!(names, 1);
    }
}
