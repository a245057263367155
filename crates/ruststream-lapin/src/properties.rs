//! Headers of the framework as properties and header table of AMQP, and back.
//!
//! A table has neither order nor a name twice. So a name that stands twice becomes an array, and an order other than the one in
//! which a table is read becomes a header of its own; both are rare. Headers that AMQP has a property for travel as that property.

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use ruststream::message::{HeaderMap, header};
use ruststream::transport::{ErrorKind, TransportError};

/// Headers of this crate in the table. No one sees them as headers of a message.
pub(crate) mod own {
    /// How often the message was handed out before this copy of it was published.
    pub(crate) const ATTEMPTS: &str = "ruststream-attempts";
    /// Set where the last of those attempts never ended.
    pub(crate) const UNFINISHED: &str = "ruststream-unfinished";
    /// The names of the headers, in their order.
    pub(crate) const ORDER: &str = "ruststream-order";
    /// Where the message was published to, before a copy was put into the queue itself.
    pub(crate) const EXCHANGE: &str = "ruststream-exchange";
    pub(crate) const ROUTING_KEY: &str = "ruststream-routing-key";
    pub(crate) const PREFIX: &str = "ruststream-";
}

/// How often a quorum queue has handed the message out before; <https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling>.
pub(crate) const DELIVERY_COUNT: &str = "x-delivery-count";
/// Where and why the server dead-lettered the message; <https://www.rabbitmq.com/docs/dlx#effects>.
pub(crate) const DEATHS: &str = "x-death";

/// Where in its stream a message stands; <https://www.rabbitmq.com/docs/streams#consuming>.
pub(crate) const STREAM_OFFSET: &str = "x-stream-offset";

/// Names and values of a table are as long as AMQP 0-9-1 has it, section 4.2.5.3.
const LONGEST_NAME: usize = 255;

/// A header that AMQP has a property for, in the order in which they are read.
#[derive(Clone, Copy)]
enum Property {
    ContentType,
    ContentEncoding,
    CorrelationId,
    ReplyTo,
    MessageId,
}

impl Property {
    const ALL: [Self; 5] = [
        Self::ContentType,
        Self::ContentEncoding,
        Self::CorrelationId,
        Self::ReplyTo,
        Self::MessageId,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::ContentType => header::CONTENT_TYPE,
            Self::ContentEncoding => "content-encoding",
            Self::CorrelationId => header::CORRELATION_ID,
            Self::ReplyTo => header::REPLY_TO,
            Self::MessageId => header::MESSAGE_ID,
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|property| property.name() == name)
    }

    fn get(self, properties: &BasicProperties) -> Option<&str> {
        let value = match self {
            Self::ContentType => properties.content_type(),
            Self::ContentEncoding => properties.content_encoding(),
            Self::CorrelationId => properties.correlation_id(),
            Self::ReplyTo => properties.reply_to(),
            Self::MessageId => properties.message_id(),
        };
        value.as_ref().map(ShortString::as_str)
    }

    fn set(self, properties: BasicProperties, value: ShortString) -> BasicProperties {
        match self {
            Self::ContentType => properties.with_content_type(value),
            Self::ContentEncoding => properties.with_content_encoding(value),
            Self::CorrelationId => properties.with_correlation_id(value),
            Self::ReplyTo => properties.with_reply_to(value),
            Self::MessageId => properties.with_message_id(value),
        }
    }
}

/// Adds headers and key to the properties of a message.
pub(crate) fn encode(
    headers: &HeaderMap,
    key: Option<&[u8]>,
    mut properties: BasicProperties,
) -> Result<BasicProperties, TransportError> {
    if headers.is_empty() && key.is_none() {
        return Ok(properties);
    }
    let mut table = properties.headers().clone().unwrap_or_default();
    for (name, value) in headers.iter() {
        let again = || headers.get_all(name).nth(1).is_some();
        if let Some((property, text)) = Property::of(name).zip(short(value))
            && !again()
        {
            properties = property.set(properties, text);
            continue;
        }
        if name == header::KEY && key.is_some() {
            continue;
        }
        let place = short_name(name)?;
        // The server takes these two as lists of further routing keys, and no other way.
        let value = if matches!(name, "CC" | "BCC") || again() {
            let all: Vec<_> = headers.get_all(name).map(long).collect();
            AMQPValue::FieldArray(all.into())
        } else {
            long(value)
        };
        table.insert(place, value);
    }
    if let Some(key) = key {
        table.insert(header::KEY.into(), long(key));
    }
    if !is_in_table_order(headers) {
        let names: Vec<_> = headers.iter().map(|(name, _)| long(name.as_bytes())).collect();
        table.insert(own::ORDER.into(), AMQPValue::FieldArray(names.into()));
    }
    if !table.inner().is_empty() {
        properties = properties.with_headers(table);
    }
    Ok(properties)
}

/// Whether reading them back gives this order by itself: properties first, then names in the order of the table.
fn is_in_table_order(headers: &HeaderMap) -> bool {
    let ranks = headers.iter().map(|(name, value)| match Property::of(name) {
        Some(property) if short(value).is_some() && headers.get_all(name).nth(1).is_none() => (property as usize, ""),
        _ => (usize::MAX, name),
    });
    headers.len() < 2 || ranks.is_sorted()
}

fn short(value: &[u8]) -> Option<ShortString> {
    let text = std::str::from_utf8(value).ok()?;
    ShortString::try_new(text).ok()
}

fn short_name(name: &str) -> Result<ShortString, TransportError> {
    if name.starts_with(own::PREFIX) {
        let text = format!(
            "header names that begin with `{}` are the transport's own: rename `{name}`",
            own::PREFIX
        );
        return Err(TransportError::new(ErrorKind::Invalid, text));
    }
    ShortString::try_new(name).map_err(|_| {
        let start: String = name.chars().take(20).collect();
        let text = format!(
            "the header name {start:?}... has {} bytes; AMQP takes up to {LONGEST_NAME}",
            name.len()
        );
        TransportError::new(ErrorKind::Invalid, text)
    })
}

pub(crate) fn long(value: &[u8]) -> AMQPValue {
    AMQPValue::LongString(LongString::from(value))
}

/// The headers of a delivery, as they were published: without what the server and this crate add.
pub(crate) fn decode(properties: &BasicProperties) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for property in Property::ALL {
        if let Some(value) = property.get(properties) {
            headers.append(property.name(), bytes_of(value));
        }
    }
    let Some(table) = properties.headers() else {
        return headers;
    };
    for (name, value) in table.inner() {
        let name = name.as_str();
        if is_hidden(name) {
            continue;
        }
        let name = || match name {
            header::KEY => Cow::Borrowed(header::KEY),
            _ => Cow::Owned(name.to_owned()),
        };
        match value {
            AMQPValue::FieldArray(values) => {
                for value in values.as_slice() {
                    headers.append(name(), to_bytes(value));
                }
            }
            value => headers.append(name(), to_bytes(value)),
        }
    }
    match table.inner().get(own::ORDER) {
        Some(AMQPValue::FieldArray(order)) => in_order(&headers, order),
        _ => headers,
    }
}

/// The usual content types need no copy.
fn bytes_of(value: &str) -> Bytes {
    match value {
        "application/json" => Bytes::from_static(b"application/json"),
        _ => Bytes::copy_from_slice(value.as_bytes()),
    }
}

/// What the server or this crate has put among the headers.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with(own::PREFIX)
        || name == DELIVERY_COUNT
        || name == DEATHS
        || name == STREAM_OFFSET
        || name.starts_with("x-first-death-")
        || name.starts_with("x-last-death-")
}

/// Puts headers into the order that they were published in; those added on the way come last.
fn in_order(headers: &HeaderMap, order: &FieldArray) -> HeaderMap {
    let mut rest: Vec<Option<(&str, &[u8])>> = headers.iter().map(Some).collect();
    let mut ordered = HeaderMap::new();
    for name in order.as_slice() {
        let AMQPValue::LongString(name) = name else { continue };
        let place = rest
            .iter_mut()
            .find(|entry| entry.is_some_and(|(known, _)| known.as_bytes() == name.as_bytes()));
        if let Some((name, value)) = place.and_then(Option::take) {
            ordered.append(name.to_owned(), value.to_vec());
        }
    }
    for (name, value) in rest.into_iter().flatten() {
        ordered.append(name.to_owned(), value.to_vec());
    }
    ordered
}

/// A value of any AMQP type as the bytes of a header: text as it is, numbers in decimal, what is nested as JSON.
fn to_bytes(value: &AMQPValue) -> Bytes {
    match value {
        AMQPValue::LongString(text) => Bytes::copy_from_slice(text.as_bytes()),
        AMQPValue::ShortString(text) => Bytes::copy_from_slice(text.as_str().as_bytes()),
        AMQPValue::ByteArray(bytes) => Bytes::copy_from_slice(bytes.as_slice()),
        AMQPValue::Void => Bytes::new(),
        other => {
            let mut text = String::new();
            write_value(&mut text, other);
            text.into()
        }
    }
}

fn write_value(into: &mut String, value: &AMQPValue) {
    // Writing into a string does not fail.
    let _ = match value {
        AMQPValue::Boolean(value) => write!(into, "{value}"),
        AMQPValue::ShortShortInt(value) => write!(into, "{value}"),
        AMQPValue::ShortShortUInt(value) => write!(into, "{value}"),
        AMQPValue::ShortInt(value) => write!(into, "{value}"),
        AMQPValue::ShortUInt(value) => write!(into, "{value}"),
        AMQPValue::LongInt(value) => write!(into, "{value}"),
        AMQPValue::LongUInt(value) => write!(into, "{value}"),
        AMQPValue::LongLongInt(value) => write!(into, "{value}"),
        AMQPValue::Float(value) => write!(into, "{value}"),
        AMQPValue::Double(value) => write!(into, "{value}"),
        AMQPValue::Timestamp(value) => write!(into, "{value}"),
        AMQPValue::DecimalValue(decimal) => write_decimal(into, decimal.value, decimal.scale),
        AMQPValue::LongString(text) => write!(into, "{:?}", String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ShortString(text) => write!(into, "{:?}", text.as_str()),
        AMQPValue::ByteArray(bytes) => write!(into, "{:?}", String::from_utf8_lossy(bytes.as_slice())),
        AMQPValue::Void => write!(into, "null"),
        AMQPValue::FieldArray(values) => {
            into.push('[');
            for (place, value) in values.as_slice().iter().enumerate() {
                if place > 0 {
                    into.push(',');
                }
                write_value(into, value);
            }
            into.push(']');
            Ok(())
        }
        AMQPValue::FieldTable(table) => {
            into.push('{');
            for (place, (name, value)) in table.inner().iter().enumerate() {
                if place > 0 {
                    into.push(',');
                }
                let _ = write!(into, "{:?}:", name.as_str());
                write_value(into, value);
            }
            into.push('}');
            Ok(())
        }
    };
}

fn write_decimal(into: &mut String, value: u32, scale: u8) -> std::fmt::Result {
    let digits = format!("{value:0width$}", width = usize::from(scale) + 1);
    let (whole, part) = digits.split_at(digits.len() - usize::from(scale));
    match part {
        "" => write!(into, "{whole}"),
        part => write!(into, "{whole}.{part}"),
    }
}

/// A whole number under `name` in the header table, whatever its type.
pub(crate) fn number(properties: &BasicProperties, name: &str) -> Option<u64> {
    let value = properties.headers().as_ref()?.inner().get(name)?;
    match value {
        AMQPValue::ShortShortInt(value) => (*value).try_into().ok(),
        AMQPValue::ShortShortUInt(value) => Some((*value).into()),
        AMQPValue::ShortInt(value) => (*value).try_into().ok(),
        AMQPValue::ShortUInt(value) => Some((*value).into()),
        AMQPValue::LongInt(value) => (*value).try_into().ok(),
        AMQPValue::LongUInt(value) => Some((*value).into()),
        AMQPValue::LongLongInt(value) => (*value).try_into().ok(),
        AMQPValue::Timestamp(value) => Some(*value),
        _ => None,
    }
}

/// Whether something stands under `name` in the header table.
pub(crate) fn has(properties: &BasicProperties, name: &str) -> bool {
    properties
        .headers()
        .as_ref()
        .is_some_and(|table| table.contains_key(name))
}

/// A text of this crate's own under `name` in the header table: an exchange or a routing key.
pub(crate) fn short_text(properties: &BasicProperties, name: &str) -> Option<ShortString> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => short(text.as_bytes()),
        AMQPValue::ShortString(text) => Some(text.clone()),
        _ => None,
    }
}

/// The properties of a message for a copy of it with other headers.
///
/// The user is left out, since the server takes a user's name from no one else, and so is the expiration, which was for the
/// time before the message was delivered.
pub(crate) fn with_table(properties: &BasicProperties, table: FieldTable) -> BasicProperties {
    let mut copy = BasicProperties::default().with_delivery_mode(properties.delivery_mode().unwrap_or(2));
    for property in Property::ALL {
        if let Some(value) = property.get(properties) {
            copy = property.set(copy, value.into());
        }
    }
    if let Some(priority) = *properties.priority() {
        copy = copy.with_priority(priority);
    }
    if let Some(timestamp) = *properties.timestamp() {
        copy = copy.with_timestamp(timestamp);
    }
    if let Some(kind) = properties.kind() {
        copy = copy.with_type(kind.clone());
    }
    if let Some(app) = properties.app_id() {
        copy = copy.with_app_id(app.clone());
    }
    if table.inner().is_empty() {
        copy
    } else {
        copy.with_headers(table)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = String> {
        let property = prop::sample::select(Property::ALL.map(Property::name).to_vec()).prop_map(str::to_owned);
        prop_oneof![property, "[a-e]{1,2}", "\\PC{0,20}"]
    }

    proptest! {
        #[test]
        fn any_headers_survive_the_table(
            pairs in prop::collection::vec((name(), prop::collection::vec(any::<u8>(), 0..300)), 0..8),
        ) {
            let headers: HeaderMap = pairs.into_iter().filter(|(name, _)| !is_hidden(name)).collect();
            let properties = encode(&headers, None, BasicProperties::default()).unwrap();
            prop_assert_eq!(decode(&properties), headers);
        }
    }

    #[test]
    fn one_header_needs_no_order_of_its_own() {
        let headers: HeaderMap = [(header::CONTENT_TYPE, "application/json"), ("a", "1"), ("b", "2")]
            .into_iter()
            .collect();
        let properties = encode(&headers, None, BasicProperties::default()).unwrap();
        assert_eq!(
            properties.content_type().as_ref().map(ShortString::as_str),
            Some("application/json")
        );
        let table = properties.headers().clone().unwrap();
        assert_eq!(table.inner().len(), 2);
    }

    #[test]
    fn values_of_other_types_are_read_as_text() {
        let mut table = FieldTable::default();
        table.insert("flag".into(), true.into());
        table.insert("count".into(), 7i64.into());
        let decimal = lapin::types::DecimalValue { scale: 2, value: 5 };
        table.insert("price".into(), AMQPValue::DecimalValue(decimal));
        let headers = decode(&BasicProperties::default().with_headers(table));
        assert_eq!(headers.get_str("flag"), Some("true"));
        assert_eq!(headers.get_str("count"), Some("7"));
        assert_eq!(headers.get_str("price"), Some("0.05"));
    }

    #[test]
    fn a_name_that_amqp_cannot_carry_is_refused() {
        for name in ["n".repeat(256), own::ATTEMPTS.to_owned()] {
            let headers: HeaderMap = [(name, "1")].into_iter().collect();
            let refused = encode(&headers, None, BasicProperties::default()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
        }
    }
}
