//! Records as messages of the framework.

use bytes::Bytes;
use ruststream::message::{HeaderMap, Incoming, header};
use ruststream::publish::{Publisher, Publishing};

/// The header that names a tracked message.
pub(super) const TRACKED: &str = "outbox-record";

/// A record, about to be published.
pub(super) fn publishing(
    publisher: &Publisher,
    destination: &str,
    key: Option<&[u8]>,
    headers: &[u8],
    payload: &[u8],
) -> Result<Publishing, String> {
    let headers = HeaderMap::from_block(headers).map_err(|error| format!("its headers cannot be read: {error}"))?;
    let mut publishing = publisher
        .publish_bytes(destination.to_owned(), payload)
        .headers(&headers);
    if let Some(key) = key {
        publishing = publishing.key(Bytes::copy_from_slice(key));
    }
    Ok(publishing)
}

/// The id by which a message is tracked, if it is: what does not look like one is none.
pub(super) fn tracked_id<'a>(incoming: &Incoming<'a>) -> Option<&'a str> {
    let id = incoming.headers().get_str(TRACKED)?;
    is_id(id).then_some(id)
}

pub(super) fn message_id<'a>(incoming: &Incoming<'a>) -> Option<&'a str> {
    incoming.headers().get_str(header::MESSAGE_ID)
}

/// What this crate makes: 32 hexadecimal digits.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// What a column takes of an error's text.
pub(super) fn short(mut text: String) -> String {
    const LONGEST: usize = 4096;
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text.replace('\0', "\u{fffd}")
}
