//! Compressed payloads: what a `content-encoding` names, and what it makes of them.

#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "zstd")]
mod zstd;

use std::borrow::Cow;
use std::io::{self, Read};

use super::{CodecError, ends_with};
use crate::message::{HeaderMap, header};

#[cfg(feature = "gzip")]
pub(crate) use gzip::Gzip;
#[cfg(feature = "zstd")]
pub(crate) use zstd::Zstd;

/// The most bytes that a payload may have once it is decompressed, where nothing else is set.
pub(crate) const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

/// How much is worked on before other tasks get their turn: about a millisecond at the speed of gzip.
pub(crate) const PIECE: usize = 64 * 1024;

/// One way to compress.
pub(crate) trait Compression: Send + Sync + 'static {
    /// Its name in `content-encoding` (RFC 9110, section 8.4.1; RFC 8878, section 7.2).
    fn name(&self) -> &'static str;

    /// Reads what was compressed so, of which `at_most` bytes are wanted.
    fn reader<'a>(&self, payload: &'a [u8], at_most: usize) -> io::Result<Box<dyn Read + Send + 'a>>;

    /// Compresses `length` bytes, written piece by piece, by this level or the usual one.
    #[cfg(any(feature = "gzip", feature = "zstd"))]
    fn writer(&self, length: usize, level: Option<i32>) -> io::Result<Box<dyn Writer>>;
}

/// Compresses one payload.
#[cfg(any(feature = "gzip", feature = "zstd"))]
pub(crate) trait Writer: Send {
    fn write(&mut self, piece: &[u8]) -> io::Result<()>;

    /// The compressed payload.
    fn finish(self: Box<Self>) -> io::Result<Vec<u8>>;
}

static KNOWN: &[&dyn Compression] = &[
    #[cfg(feature = "gzip")]
    &Gzip,
    #[cfg(feature = "zstd")]
    &Zstd,
];

/// The parts of RustStream that are not compiled in, which read a `content-encoding`.
const ELSEWHERE: &[(&str, &str)] = &[
    #[cfg(not(feature = "gzip"))]
    ("gzip", "enable the feature `gzip` of `ruststream`"),
    #[cfg(not(feature = "zstd"))]
    ("zstd", "enable the feature `zstd` of `ruststream`"),
];

/// What is no compression: the name for none, and the two that kombu, the library under Celery, writes of a payload's text.
const PLAIN: &[&str] = &["", "identity", "utf-8", "binary"];

/// The compression that these headers name; `None` where the payload is as it was written.
///
/// # Errors
///
/// Where it is not known; the text says which are.
pub(crate) fn named(headers: &HeaderMap) -> Result<Option<&'static dyn Compression>, CodecError> {
    let Some(value) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(None);
    };
    let value = String::from_utf8_lossy(value);
    let name = value.trim().to_ascii_lowercase();
    if PLAIN.contains(&name.as_str()) {
        return Ok(None);
    }
    // RFC 9110 has it that `x-gzip` is another name for `gzip`.
    let name = name.strip_prefix("x-").unwrap_or(&name);
    let known = KNOWN.iter().find(|known| name == known.name());
    match known {
        Some(known) => Ok(Some(*known)),
        None => Err(unknown(&value)),
    }
}

#[cold]
fn unknown(value: &str) -> CodecError {
    let known = match KNOWN {
        [] => "none is compiled in".to_owned(),
        known => {
            let names: Vec<_> = known.iter().map(|known| known.name()).collect();
            format!("known: {}", names.join(", "))
        }
    };
    let mut text = format!("nothing here decompresses the content encoding {value:?}; {known}");
    if let Some((_, fix)) = ELSEWHERE.iter().find(|(name, _)| ends_with(value.trim(), name)) {
        text = format!("{text}; {fix}");
    }
    CodecError::new(text)
}

/// The payload as it was written, by what its headers say of it.
pub(crate) fn plain<'a>(headers: &HeaderMap, payload: &'a [u8]) -> Result<Cow<'a, [u8]>, CodecError> {
    let Some(compression) = named(headers)? else {
        return Ok(Cow::Borrowed(payload));
    };
    let mut decompression = Decompression::new(compression, payload, MAX_PAYLOAD)?;
    while decompression.advance()? {}
    Ok(Cow::Owned(decompression.plain))
}

/// A payload that is being decompressed, piece by piece.
pub(crate) struct Decompression<'a> {
    name: &'static str,
    reader: Box<dyn Read + Send + 'a>,
    plain: Vec<u8>,
    at_most: usize,
}

impl<'a> Decompression<'a> {
    pub(crate) fn new(compression: &dyn Compression, payload: &'a [u8], at_most: usize) -> Result<Self, CodecError> {
        let name = compression.name();
        // To the readers nothing is a list of no frames, but no one has compressed anything to nothing.
        if payload.is_empty() {
            return Err(broken(name, "it is empty"));
        }
        Ok(Self {
            name,
            reader: compression
                .reader(payload, at_most)
                .map_err(|error| broken(name, error))?,
            plain: Vec::new(),
            at_most,
        })
    }

    /// Reads one piece more; false once all is read and proved whole.
    pub(crate) fn advance(&mut self) -> Result<bool, CodecError> {
        let room = self.at_most - self.plain.len();
        let wanted = room.saturating_add(1).min(PIECE);
        let read = (&mut self.reader).take(wanted as u64).read_to_end(&mut self.plain);
        let read = read.map_err(|error| broken(self.name, error))?;
        if read > room {
            return Err(CodecError::new(format!(
                "the payload has more than {} bytes once it is decompressed by {}, which is the limit",
                self.at_most, self.name
            )));
        }
        Ok(read == wanted)
    }

    /// All that was read.
    #[cfg(any(feature = "gzip", feature = "zstd"))]
    pub(crate) fn into_plain(self) -> Vec<u8> {
        self.plain
    }
}

#[cold]
fn broken(name: &str, why: impl std::fmt::Display) -> CodecError {
    CodecError::new(format!(
        "the payload is no whole {name}, as its content encoding says: {why}"
    ))
}

#[cfg(all(test, any(feature = "gzip", feature = "zstd")))]
#[allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
mod tests {
    use super::*;

    /// A text as each compression writes it.
    fn compressed(text: &str) -> impl Iterator<Item = (&'static dyn Compression, Vec<u8>)> {
        KNOWN.iter().map(move |compression| {
            let mut writer = compression.writer(text.len(), None).unwrap();
            writer.write(text.as_bytes()).unwrap();
            (*compression, writer.finish().unwrap())
        })
    }

    fn read(compression: &dyn Compression, payload: &[u8]) -> Result<Vec<u8>, CodecError> {
        let mut decompression = Decompression::new(compression, payload, 1000)?;
        while decompression.advance()? {}
        Ok(decompression.into_plain())
    }

    #[test]
    fn no_damage_makes_another_payload() {
        let text = "{\"region\":\"eu\",\"lines\":[1,2,3,4,5,6,7,8,9,10,11,12]}".repeat(4);
        for (compression, whole) in compressed(&text) {
            assert_eq!(read(compression, &whole).unwrap(), text.as_bytes());
            for bit in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // A bit may mean nothing: the time in a gzip header.
                if let Ok(read) = read(compression, &damaged) {
                    assert_eq!(read, text.as_bytes(), "bit {bit} of {}", compression.name());
                }
            }
            for length in 0..whole.len() {
                assert!(
                    read(compression, &whole[..length]).is_err(),
                    "{length} bytes of {}",
                    compression.name()
                );
            }
        }
    }

    #[test]
    fn parts_that_stand_behind_each_other_are_one_payload() {
        for (compression, part) in compressed("part ") {
            let two = [&part[..], &part[..]].concat();
            assert_eq!(read(compression, &two).unwrap(), b"part part ");
        }
    }
}
