//! Raw bytes: what the payload is, without a format.
//!
//! A text is its UTF-8, bytes are themselves, whether a type calls them bytes (`&[u8]`) or a sequence of `u8` (`Vec<u8>`), and a
//! newtype is what it holds. Everything else needs a format and is refused.

use std::fmt;

use serde::de::value::SeqDeserializer;
use serde::de::{self, Visitor};
use serde::ser::{self, Impossible, SerializeSeq, SerializeTuple};
use serde::{Deserialize, Serialize};

use super::CodecError;

pub(super) const NAME: &str = "raw bytes";
pub(super) const CONTENT_TYPE: &str = "application/octet-stream";
pub(super) const READS: &[&str] = &[CONTENT_TYPE, "text/plain"];

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    T::deserialize(Reader(bytes)).map_err(|error| CodecError::undecodable::<T>(NAME, error))
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T, into: &mut Vec<u8>) -> Result<(), CodecError> {
    value
        .serialize(Writer { into, element: false })
        .map_err(|error| CodecError::unwritable::<T>(NAME, error))
}

/// Why something is no raw bytes.
#[derive(Debug)]
struct Refused(String);

impl Refused {
    fn kind<T>(kind: &str) -> Result<T, Self> {
        Err(Self(format!(
            "{kind} needs a format; only texts and bytes are written as they are"
        )))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> de::Deserializer<'a> for Reader<'a> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Refused> {
        match std::str::from_utf8(self.0) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(error) => Err(Refused(error.to_string())),
        }
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(SeqDeserializer::new(self.0.iter().copied()))
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        if self.0.len() == len {
            self.deserialize_seq(visitor)
        } else {
            Err(de::Error::invalid_length(self.0.len(), &visitor))
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn is_human_readable(&self) -> bool {
        true
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple_struct map struct
        enum identifier ignored_any
    }
}

struct Writer<'a> {
    into: &'a mut Vec<u8>,
    /// Whether it stands within a sequence, where each element is one byte.
    element: bool,
}

/// Writes the methods of a serializer that refuse what they are given.
macro_rules! refuse {
    ($($method:ident($($given:ty),*) is $kind:literal;)*) => {
        $(fn $method(self, $(_: $given),*) -> Result<(), Refused> {
            Refused::kind($kind)
        })*
    };
}

impl<'a> ser::Serializer for Writer<'a> {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Writer<'a>;
    type SerializeTuple = Writer<'a>;
    type SerializeTupleStruct = Impossible<(), Refused>;
    type SerializeTupleVariant = Impossible<(), Refused>;
    type SerializeMap = Impossible<(), Refused>;
    type SerializeStruct = Impossible<(), Refused>;
    type SerializeStructVariant = Impossible<(), Refused>;

    fn serialize_str(self, text: &str) -> Result<(), Refused> {
        self.serialize_bytes(text.as_bytes())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Refused> {
        if self.element {
            return Refused::kind("a sequence of anything but bytes");
        }
        self.into.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_u8(self, byte: u8) -> Result<(), Refused> {
        if !self.element {
            return Refused::kind("a number");
        }
        self.into.push(byte);
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Refused> {
        if self.element {
            return Refused::kind("a sequence of sequences");
        }
        Ok(Self {
            into: self.into,
            element: true,
        })
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Refused> {
        self.serialize_seq(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Refused> {
        Refused::kind("an enum")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Refused> {
        Refused::kind("a struct")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Refused> {
        Refused::kind("an enum")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Refused> {
        Refused::kind("a map")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Refused> {
        Refused::kind("a struct")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Refused> {
        Refused::kind("an enum")
    }

    refuse! {
        serialize_bool(bool) is "a truth value";
        serialize_i8(i8) is "a number";
        serialize_i16(i16) is "a number";
        serialize_i32(i32) is "a number";
        serialize_i64(i64) is "a number";
        serialize_u16(u16) is "a number";
        serialize_u32(u32) is "a number";
        serialize_u64(u64) is "a number";
        serialize_f32(f32) is "a number";
        serialize_f64(f64) is "a number";
        serialize_char(char) is "a character";
        serialize_none() is "nothing";
        serialize_unit() is "nothing";
        serialize_unit_struct(&'static str) is "a struct";
        serialize_unit_variant(&'static str, u32, &'static str) is "an enum";
    }
}

impl SerializeSeq for Writer<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, element: &T) -> Result<(), Refused> {
        element.serialize(Writer {
            into: self.into,
            element: true,
        })
    }

    fn end(self) -> Result<(), Refused> {
        Ok(())
    }
}

impl SerializeTuple for Writer<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, element: &T) -> Result<(), Refused> {
        SerializeSeq::serialize_element(self, element)
    }

    fn end(self) -> Result<(), Refused> {
        Ok(())
    }
}
