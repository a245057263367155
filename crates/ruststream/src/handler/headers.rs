//! The headers of the message, as extractors.

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, MapDeserializer};
use serde::de::{self, IntoDeserializer, Visitor};

use super::{Call, Extract, Outcome};
use crate::message::HeaderMap;

/// The headers of the message, read into a type of yours: a field for each header that it needs.
///
/// Texts may borrow from the message; numbers and truth values are read from text; an `Option` is `None` where the header is
/// missing. A message whose headers do not fit is undecodable, and the reason names the header. For all headers as they are,
/// take `&HeaderMap`.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "kebab-case")]
/// struct Origin {
///     region: String,
///     schema_version: u32,
///     trace: Option<String>,
/// }
///
/// #[subscriber("orders")]
/// async fn confirm(order: u64, Headers(origin): Headers<Origin>) {
///     println!("order {order} of {}, schema {}", origin.region, origin.schema_version);
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers<T>(pub T);

impl<T> Deref for Headers<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'a, S: Send + Sync, T: Deserialize<'a> + Send> Extract<'a, S> for Headers<T> {
    type Rejection = Outcome;

    async fn extract(call: Call<'a, S>) -> Result<Self, Outcome> {
        let headers: &'a HeaderMap = call.incoming().headers();
        // Of a name that stands more than once, the first value counts, as with `HeaderMap::get`.
        let first = |place: usize, name: &str| !headers.iter().take(place).any(|(earlier, _)| earlier == name);
        let entries = headers
            .iter()
            .enumerate()
            .filter(|(place, (name, _))| first(*place, name))
            .map(|(_, (name, value))| (name, Value { name, value }));
        match T::deserialize(MapDeserializer::new(entries)) {
            Ok(headers) => Ok(Self(headers)),
            Err(Unfit(why)) => Err(Outcome::Undecodable(format!("the headers do not fit: {why}"))),
        }
    }
}

/// All headers of the message, as published.
impl<'a, S: Send + Sync> Extract<'a, S> for &'a HeaderMap {
    type Rejection = Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Infallible> {
        Ok(call.incoming().headers())
    }
}

/// Why headers do not fit.
#[derive(Debug)]
struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl de::Error for Unfit {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }

    fn missing_field(name: &'static str) -> Self {
        Self(format!("`{name}` is missing"))
    }
}

/// One value, which is text or bytes until a type asks for something else.
struct Value<'a> {
    name: &'a str,
    value: &'a [u8],
}

impl<'a> Value<'a> {
    fn text(&self) -> Result<&'a str, Unfit> {
        std::str::from_utf8(self.value).map_err(|_| Unfit(format!("`{}` is not text", self.name)))
    }

    fn unfit(&self, why: impl fmt::Display) -> Unfit {
        Unfit(format!("`{}`: {why}", self.name))
    }
}

impl<'a> IntoDeserializer<'a, Unfit> for Value<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Writes the methods that read a value from its text.
macro_rules! parse {
    ($($method:ident $visit:ident $type:ty),* $(,)?) => {
        $(fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
            let text = self.text()?;
            match text.trim().parse::<$type>() {
                Ok(value) => visitor.$visit(value).map_err(|error: Unfit| self.unfit(error)),
                Err(_) => Err(self.unfit(format_args!("{text:?} is no {}", stringify!($type)))),
            }
        })*
    };
}

impl<'a> de::Deserializer<'a> for Value<'a> {
    type Error = Unfit;

    /// Text where it is text.
    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match std::str::from_utf8(self.value) {
            Ok(text) => visitor
                .visit_borrowed_str(text)
                .map_err(|error: Unfit| self.unfit(error)),
            Err(_) => self.deserialize_bytes(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
        let text = self.text()?;
        visitor
            .visit_borrowed_str(text)
            .map_err(|error: Unfit| self.unfit(error))
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor
            .visit_borrowed_bytes(self.value)
            .map_err(|error: Unfit| self.unfit(error))
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        let text = self.text()?;
        visitor
            .visit_enum(BorrowedStrDeserializer::new(text))
            .map_err(|error: Unfit| self.unfit(error))
    }

    parse! {
        deserialize_bool visit_bool bool,
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_i128 visit_i128 i128,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_u128 visit_u128 u128,
        deserialize_f32 visit_f32 f32,
        deserialize_f64 visit_f64 f64,
        deserialize_char visit_char char,
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'a>>
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
