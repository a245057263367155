//! Headers of the framework as properties of MQTT 5, and back.
//!
//! Three headers have properties of their own: content type, correlation data and response topic. All others are user properties, which keep
//! their order and may bear a name twice. Those are UTF-8 text without U+0000 (section 1.5.4); a value that is not travels as hexadecimal
//! digits, under a name that says so.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::PublishProperties;
use ruststream::message::{HeaderMap, header};
use ruststream::transport::{ErrorKind, TransportError};

use crate::topic;

/// Stands before the name of a header whose value is written in hexadecimal digits.
const HEXADECIMAL: &str = "ruststream-hex:";
/// Where the headers stood that became properties of their own, if not at the front in the order of [`SPECIAL`].
const PLACES: &str = "ruststream-places";

const SPECIAL: [&str; 3] = [header::CONTENT_TYPE, header::CORRELATION_ID, header::REPLY_TO];

/// Adds headers and key to the properties of a message.
pub(crate) fn encode(
    headers: &HeaderMap,
    key: Option<&[u8]>,
    properties: &mut PublishProperties,
) -> Result<(), TransportError> {
    let mut special = Vec::new();
    let kept = headers.iter().filter(|(name, _)| *name != header::KEY || key.is_none());
    for (place, (name, value)) in kept.enumerate() {
        let rank = SPECIAL.iter().position(|known| *known == name);
        if let Some(rank) = rank
            && headers.get_all(name).nth(1).is_none()
            && set(properties, rank, value)
        {
            special.push((rank, place));
        } else {
            properties.user_properties.push(pair(name, value)?);
        }
    }
    if let Some(key) = key {
        properties.user_properties.push(pair(header::KEY, key)?);
    }
    let at_the_front = special.iter().enumerate().all(|(at, (_, place))| at == *place) && special.is_sorted();
    if !at_the_front {
        special.sort_unstable();
        let places: Vec<_> = special.iter().map(|(_, place)| place.to_string()).collect();
        properties.user_properties.push((PLACES.to_owned(), places.join(",")));
    }
    Ok(())
}

/// Sets the property of that rank in [`SPECIAL`], if it can have the value.
fn set(properties: &mut PublishProperties, rank: usize, value: &[u8]) -> bool {
    if value.len() > topic::LONGEST {
        return false;
    }
    let text = || {
        std::str::from_utf8(value)
            .ok()
            .filter(|text| !text.contains('\0'))
            .map(str::to_owned)
    };
    match rank {
        0 => {
            properties.content_type = text();
            properties.content_type.is_some()
        }
        1 => {
            properties.correlation_data = Some(Bytes::copy_from_slice(value));
            true
        }
        _ => {
            properties.response_topic = text().filter(|name| topic::check_topic("the topic for replies", name).is_ok());
            properties.response_topic.is_some()
        }
    }
}

fn pair(name: &str, value: &[u8]) -> Result<(String, String), TransportError> {
    let shown = || name.chars().take(100).collect::<String>();
    if name.contains('\0') {
        let text = format!(
            "the header name `{}` contains U+0000, which MQTT does not carry",
            shown().escape_debug()
        );
        return Err(TransportError::new(ErrorKind::Invalid, text));
    }
    let (name, value) = match std::str::from_utf8(value) {
        Ok(text) if !text.contains('\0') && !name.starts_with(HEXADECIMAL) => (name.to_owned(), text.to_owned()),
        _ => (format!("{HEXADECIMAL}{name}"), digits(value)),
    };
    if name.len() > topic::LONGEST || value.len() > topic::LONGEST {
        let text = format!(
            "the header `{}` takes {} bytes on the wire; MQTT carries at most 65,535 in a name and in a value: put it into the payload",
            name.chars().take(100).collect::<String>(),
            name.len().max(value.len())
        );
        return Err(TransportError::new(ErrorKind::TooLarge, text));
    }
    Ok((name, value))
}

fn digits(value: &[u8]) -> String {
    value
        .iter()
        .fold(String::with_capacity(value.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8))
        .collect()
}

/// The headers that a message came with, taken out of its properties.
pub(crate) fn decode(properties: &mut PublishProperties) -> HeaderMap {
    let mut places = None;
    let mut special = Vec::new();
    if let Some(value) = &properties.content_type {
        special.push((SPECIAL[0], Bytes::from(value.clone())));
    }
    if let Some(value) = &properties.correlation_data {
        special.push((SPECIAL[1], value.clone()));
    }
    if let Some(value) = &properties.response_topic {
        special.push((SPECIAL[2], Bytes::from(value.clone())));
    }
    let mut pairs: Vec<(Cow<'static, str>, Bytes)> = Vec::new();
    for (name, value) in std::mem::take(&mut properties.user_properties) {
        if name == PLACES {
            places = Some(value);
        } else if let Some((name, bytes)) = name.strip_prefix(HEXADECIMAL).zip(bytes_of(&value)) {
            pairs.push((Cow::Owned(name.to_owned()), bytes.into()));
        } else {
            pairs.push((Cow::Owned(name), value.into()));
        }
    }
    // What another client wrote there is not to be trusted: a place that is none is the end.
    let places = places.as_deref().unwrap_or("0,1,2");
    let mut special: Vec<_> = special
        .into_iter()
        .zip(
            places
                .split(',')
                .map(|place| place.parse().unwrap_or(usize::MAX))
                .chain(iter::repeat(usize::MAX)),
        )
        .map(|((name, value), place)| (place, name, value))
        .collect();
    special.sort_by_key(|(place, ..)| *place);
    for (place, name, value) in special {
        pairs.insert(place.min(pairs.len()), (Cow::Borrowed(name), value));
    }
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            prop::sample::select(vec![
                "content-type",
                "correlation-id",
                "reply-to",
                "a",
                "ruststream-hex:a"
            ])
            .prop_map(str::to_owned),
            "[^\0]{0,5}",
        ]
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            "[a-c\0+ü]{0,4}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..4)
        ]
    }

    proptest! {
        #[test]
        fn any_headers_survive(pairs in prop::collection::vec((name(), value()), 0..6)) {
            let headers: HeaderMap = pairs.into_iter().collect();
            let mut properties = PublishProperties::default();
            encode(&headers, None, &mut properties).unwrap();
            prop_assert_eq!(decode(&mut properties), headers);
        }

        #[test]
        fn what_others_write_is_read_without_a_panic(pairs in prop::collection::vec((".{0,3}", ".{0,5}"), 0..4), places in "[0-9,x]{0,6}") {
            let mut properties = PublishProperties { content_type: Some("a".into()), user_properties: pairs, ..Default::default() };
            properties.user_properties.push((PLACES.to_owned(), places));
            decode(&mut properties);
        }
    }

    #[test]
    fn a_header_that_is_too_long_is_told() {
        let mut headers = HeaderMap::new();
        headers.append("a", "x".repeat(70_000));
        let error = encode(&headers, None, &mut PublishProperties::default()).unwrap_err();
        assert!(error.is_too_large());
    }
}
