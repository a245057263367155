//! How messages become bytes and come back.
//!
//! A [`Codec`] is chosen for an [app](crate::app::AppBuilder::codec), a [scope](crate::app::BrokerScope::codec), a
//! [subscription](crate::app::Subscription::codec) or a [publisher](crate::publish::Publisher::with_codec); the narrower choice
//! holds. It writes what is published, with its media type as `content-type`, and reads what says nothing of its own. A message
//! with a `content-type` is read as that says, by any codec that is compiled in.

#[cfg(feature = "cbor")]
mod cbor;
pub(crate) mod compression;
mod encode;
mod error;
mod json;
#[cfg(feature = "messagepack")]
mod message_pack;
#[cfg(feature = "own-codec")]
mod own;
mod raw;

use serde::{Deserialize, Serialize};

use crate::message::{HeaderMap, header};

pub use encode::Encode;
pub use error::CodecError;
#[cfg(feature = "own-codec")]
pub use own::{Given, OwnCodec, Wanted};

/// How deep a payload may nest, so that none can use up the stack.
#[cfg(feature = "messagepack")]
const DEEPEST: usize = 128;

/// How messages become bytes and come back.
///
/// # Examples
///
/// ```
/// use ruststream::codec::Codec;
///
/// let mut bytes = Vec::new();
/// Codec::Json.encode(&("ada", 7), &mut bytes).unwrap();
/// assert_eq!(bytes, br#"["ada",7]"#);
/// assert_eq!(Codec::Json.decode::<(&str, u64)>(&bytes).unwrap(), ("ada", 7));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Codec {
    /// JSON: `application/json`.
    #[default]
    Json,
    /// MessagePack: `application/msgpack`. Structs are maps with the names of their fields. Feature `messagepack`.
    #[cfg(feature = "messagepack")]
    MessagePack,
    /// CBOR: `application/cbor`. Feature `cbor`.
    #[cfg(feature = "cbor")]
    Cbor,
    /// The payload as it is, for texts and bytes: `application/octet-stream`; `text/plain` is read too.
    ///
    /// A handler that takes `&[u8]` is given the payload whatever the codec.
    Raw,
    /// A codec of one's own. Feature `own-codec`.
    #[cfg(feature = "own-codec")]
    Own(std::sync::Arc<dyn OwnCodec>),
}

/// The codecs that read a message whatever the codec of its subscription.
static BUILT_IN: &[Codec] = &[
    Codec::Json,
    #[cfg(feature = "messagepack")]
    Codec::MessagePack,
    #[cfg(feature = "cbor")]
    Codec::Cbor,
    Codec::Raw,
];

/// What is read by an optional part of RustStream: the media type, and how to get it.
const ELSEWHERE: &[(&str, &str)] = &[
    #[cfg(not(feature = "messagepack"))]
    (
        "msgpack",
        "MessagePack is switched off: enable the feature `messagepack` of `ruststream`",
    ),
    #[cfg(not(feature = "cbor"))]
    (
        "cbor",
        "CBOR is switched off: enable the feature `cbor` of `ruststream`",
    ),
    #[cfg(not(feature = "prost"))]
    (
        "protobuf",
        "protobuf is switched off: enable the feature `prost` of `ruststream` and take the message as `Proto<T>`",
    ),
    #[cfg(feature = "prost")]
    ("protobuf", "take the message as `Proto<T>`"),
];

impl Codec {
    /// A codec of one's own.
    #[cfg(feature = "own-codec")]
    pub fn own(codec: impl OwnCodec) -> Self {
        Self::Own(std::sync::Arc::new(codec))
    }

    /// The media type written into `content-type`.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Json => json::CONTENT_TYPE,
            #[cfg(feature = "messagepack")]
            Self::MessagePack => message_pack::CONTENT_TYPE,
            #[cfg(feature = "cbor")]
            Self::Cbor => cbor::CONTENT_TYPE,
            Self::Raw => raw::CONTENT_TYPE,
            #[cfg(feature = "own-codec")]
            Self::Own(codec) => codec.content_type(),
        }
    }

    /// The codec for a message with these headers: the one that their `content-type` names, or else this one.
    ///
    /// # Errors
    ///
    /// Where the content type is neither this codec's nor that of one built in; the text says which are known.
    #[inline]
    pub(crate) fn honouring<'c>(&'c self, headers: &HeaderMap) -> Result<&'c Self, CodecError> {
        match headers.get(header::CONTENT_TYPE) {
            None => Ok(self),
            Some(content_type) if content_type == self.content_type().as_bytes() => Ok(self),
            Some(content_type) => self.named(content_type),
        }
    }

    #[inline(never)]
    fn named(&self, content_type: &[u8]) -> Result<&Self, CodecError> {
        let media_type = std::str::from_utf8(content_type).ok().map(media_type);
        std::iter::once(self)
            .chain(BUILT_IN)
            .find(|codec| media_type.is_some_and(|media_type| codec.reads(media_type)))
            .ok_or_else(|| self.unknown(content_type))
    }

    /// Whether it reads a media type: its own, or one with its suffix (RFC 6839).
    fn reads(&self, media_type: &str) -> bool {
        let known = match self {
            Self::Json => json::READS,
            #[cfg(feature = "messagepack")]
            Self::MessagePack => message_pack::READS,
            #[cfg(feature = "cbor")]
            Self::Cbor => cbor::READS,
            Self::Raw => raw::READS,
            #[cfg(feature = "own-codec")]
            Self::Own(codec) => &[codec.content_type()],
        };
        known.iter().any(|known| {
            if known.starts_with('+') {
                ends_with(media_type, known)
            } else {
                media_type.eq_ignore_ascii_case(known)
            }
        })
    }

    #[cold]
    fn unknown(&self, content_type: &[u8]) -> CodecError {
        let written = String::from_utf8_lossy(content_type);
        let mut known: Vec<_> = std::iter::once(self).chain(BUILT_IN).map(Self::content_type).collect();
        known.sort_unstable();
        known.dedup();
        let mut text = format!(
            "no codec reads the content type {written:?}; known: {}",
            known.join(", ")
        );
        let media_type = media_type(&written);
        if let Some((_, fix)) = ELSEWHERE.iter().find(|(suffix, _)| ends_with(media_type, suffix)) {
            text = format!("{text}; {fix}");
        }
        CodecError::new(text)
    }

    /// Reads a value, which may borrow from `bytes`.
    ///
    /// # Errors
    ///
    /// Where the bytes are no such value; the text says where and why.
    #[inline]
    pub fn decode<'a, T: Deserialize<'a>>(&self, bytes: &'a [u8]) -> Result<T, CodecError> {
        match self {
            Self::Json => json::decode(bytes),
            #[cfg(feature = "messagepack")]
            Self::MessagePack => message_pack::decode(bytes),
            #[cfg(feature = "cbor")]
            Self::Cbor => cbor::decode(bytes),
            Self::Raw => raw::decode(bytes),
            #[cfg(feature = "own-codec")]
            Self::Own(codec) => own::decode(&**codec, bytes),
        }
    }

    /// Appends `value` to `into`.
    ///
    /// # Errors
    ///
    /// Where the value has no form in this codec: JSON has none for a map whose keys are no text.
    #[inline]
    pub fn encode<T: Serialize + ?Sized>(&self, value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Json => json::encode(value, into),
            #[cfg(feature = "messagepack")]
            Self::MessagePack => message_pack::encode(value, into),
            #[cfg(feature = "cbor")]
            Self::Cbor => cbor::encode(value, into),
            Self::Raw => raw::encode(value, into),
            #[cfg(feature = "own-codec")]
            Self::Own(codec) => own::encode(&**codec, value, into),
        }
    }
}

/// The media type of a content type, without its parameters (`; charset=utf-8`).
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn ends_with(text: &str, end: &str) -> bool {
    let (text, end) = (text.as_bytes(), end.as_bytes());
    text.len() >= end.len() && text[text.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// What is wrong with a payload that is longer than its value.
#[cfg(any(feature = "messagepack", feature = "cbor"))]
const TRAILING: &str = "more bytes stand behind it";
