//! The headers of a message: an ordered list of names and byte values.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

/// The headers of a message: names with byte values, in the order they were added.
///
/// A name is text and compares exactly, case included. A value is any bytes: [`get_str`](Self::get_str) reads the usual
/// case. A name may stand more than once; [`get`](Self::get) answers the first. An empty list allocates nothing.
///
/// # Examples
///
/// ```
/// use ruststream::message::HeaderMap;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("region", "eu");
/// headers.append("trace", vec![0xff, 0x00]);
/// assert_eq!(headers.get_str("region"), Some("eu"));
/// assert_eq!(headers.get("trace"), Some(&[0xff, 0x00][..]));
/// ```
#[derive(Default, PartialEq, Eq)]
pub struct HeaderMap {
    entries: Vec<(Cow<'static, str>, Bytes)>,
}

impl HeaderMap {
    /// An empty list.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// The first value under `name`.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.entries
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &value[..])
    }

    /// The first value under `name`, where it is text.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Every value under `name`, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.entries
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| &value[..])
    }

    /// Sets `name` to `value` and drops what else stood under that name.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        let name = name.into();
        if self.get(&name).is_some() {
            self.remove(&name);
        }
        self.entries.push((name, value.into()));
    }

    /// As [`insert`](Self::insert), of two constants: compiled once, and put where it stays without being moved before.
    pub(crate) fn insert_static(&mut self, name: &'static str, value: &'static str) {
        if !self.entries.is_empty() {
            self.remove(name);
        }
        let value = Bytes::from_static(value.as_bytes());
        self.entries.push((Cow::Borrowed(name), value));
    }

    /// Adds a value under `name` and keeps what stands there.
    pub fn append(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.entries.push((name.into(), value.into()));
    }

    /// Drops every value under `name`; true if there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(known, _)| known != name);
        self.entries.len() != before
    }

    /// Sets every name of `other` to its last value there.
    pub(crate) fn take_over(&mut self, other: Self) {
        for (name, value) in other.entries {
            self.insert(name, value);
        }
    }

    /// Keeps the values that `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &[u8]) -> bool) {
        self.entries.retain(|(name, value)| keep(name, value));
    }

    /// Drops all of it.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + '_ {
        self.entries.iter().map(|(name, value)| (name.as_ref(), &value[..]))
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes that names and values take together.
    pub fn size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Writes all headers as one block of bytes, for transports that keep them in one field.
    ///
    /// Each name and each value stands behind its length as a little-endian `u32`. [`from_block`](Self::from_block) reads it
    /// back; any name and value survives the trip. An empty list writes nothing.
    ///
    /// # Panics
    ///
    /// If a name or a value is longer than 4 GiB.
    pub fn write_block(&self, into: &mut Vec<u8>) {
        for (name, value) in &self.entries {
            for part in [name.as_bytes(), value] {
                let length = u32::try_from(part.len()).expect("a header part fits 4 GiB");
                into.extend_from_slice(&length.to_le_bytes());
                into.extend_from_slice(part);
            }
        }
    }

    /// Reads what [`write_block`](Self::write_block) wrote.
    ///
    /// # Errors
    ///
    /// Where the block is cut short or a name is not UTF-8.
    pub fn from_block(block: &[u8]) -> Result<Self, InvalidHeader> {
        fn part<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], InvalidHeader> {
            let (length, tail) = rest.split_first_chunk::<4>().ok_or(InvalidHeader::CutShort)?;
            let length = u32::from_le_bytes(*length) as usize;
            let (part, tail) = tail.split_at_checked(length).ok_or(InvalidHeader::CutShort)?;
            *rest = tail;
            Ok(part)
        }

        let mut rest = block;
        let mut headers = Self::new();
        while !rest.is_empty() {
            let name = std::str::from_utf8(part(&mut rest)?).map_err(|_| InvalidHeader::NameNotText)?;
            let value = Bytes::copy_from_slice(part(&mut rest)?);
            headers.entries.push((Cow::Owned(name.to_owned()), value));
        }
        Ok(headers)
    }
}

/// Why a block of bytes is no list of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// The block ends inside a name or a value.
    CutShort,
    /// A name is not UTF-8.
    NameNotText,
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutShort => "the header block ends inside a name or a value",
            Self::NameNotText => "a header name is not UTF-8",
        })
    }
}

impl std::error::Error for InvalidHeader {}

impl Clone for HeaderMap {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
        }
    }

    /// Keeps the list's own buffer, and what is the same text at the same place in memory: most headers are constants, and where one
    /// message is written over another they are mostly the same.
    fn clone_from(&mut self, other: &Self) {
        self.entries.truncate(other.entries.len());
        let (again, new) = other.entries.split_at(self.entries.len());
        for ((name, value), (other_name, other_value)) in self.entries.iter_mut().zip(again) {
            let same = |one: &[u8], other: &[u8]| std::ptr::eq(one, other);
            if !(same(name.as_bytes(), other_name.as_bytes()) && same(value, other_value)) {
                name.clone_from(other_name);
                value.clone_from(other_value);
            }
        }
        if !new.is_empty() {
            self.entries.extend_from_slice(new);
        }
    }
}

impl fmt::Debug for HeaderMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))))
            .finish()
    }
}

impl<N: Into<Cow<'static, str>>, V: Into<Bytes>> FromIterator<(N, V)> for HeaderMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let entries = pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self { entries }
    }
}

impl<N: Into<Cow<'static, str>>, V: Into<Bytes>> Extend<(N, V)> for HeaderMap {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, pairs: I) {
        self.entries
            .extend(pairs.into_iter().map(|(name, value)| (name.into(), value.into())));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_headers_survive_the_block(pairs: Vec<(String, Vec<u8>)>) {
            let headers: HeaderMap = pairs.into_iter().collect();
            let mut block = Vec::new();
            headers.write_block(&mut block);
            prop_assert_eq!(HeaderMap::from_block(&block), Ok(headers));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(block: Vec<u8>) {
            let _ = HeaderMap::from_block(&block);
        }
    }

    proptest! {
        #[test]
        fn headers_written_over_others_are_the_new_ones(known: Vec<(u8, u8)>, new: Vec<(u8, u8)>) {
            const TEXTS: [&str; 4] = ["a", "b", "", "content-type"];
            let text = |one: u8| match one % 8 {
                constant @ 0..4 => Cow::Borrowed(TEXTS[usize::from(constant)]),
                owned => Cow::Owned(TEXTS[usize::from(owned - 4)].to_owned()),
            };
            let value = |one: u8| match text(one) {
                Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
                Cow::Owned(text) => Bytes::from(text),
            };
            let headers = |of: &[(u8, u8)]| of.iter().map(|&(one, other)| (text(one), value(other))).collect::<HeaderMap>();
            let mut written = headers(&known);
            written.clone_from(&headers(&new));
            prop_assert_eq!(written, headers(&new));
        }
    }

    #[test]
    fn insert_replaces_and_append_keeps() {
        let mut headers = HeaderMap::new();
        headers.append("a", "1");
        headers.append("a", "2");
        assert_eq!(headers.get_all("a").count(), 2);
        headers.insert("a", "3");
        assert_eq!(headers.get_all("a").collect::<Vec<_>>(), [b"3"]);
    }
}
