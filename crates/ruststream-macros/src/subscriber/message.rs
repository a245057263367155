//! The first parameter of a handler: which form of the message it asks for.

use syn::{Error, Type};

use crate::types::{bare, has_impl_trait, is_bytes, is_named, last_segment};

/// The form of the message that a handler asks for.
pub(super) enum Message<'a> {
    /// `T`: decoded and given away.
    Owned(&'a Type),
    /// `&T`: decoded and lent.
    Lent(&'a Type),
    /// `&str`: decoded into a `String` and lent, since a text with escapes cannot be borrowed from the payload.
    Text(&'a Type),
    /// `&[u8]`: the payload as it came.
    Bytes,
    /// `&[T]`: a batch, decoded.
    Batch(&'a Type),
    /// `&[&[u8]]`: a batch of payloads as they came.
    BytesBatch,
}

impl<'a> Message<'a> {
    pub(super) fn read(ty: &'a Type) -> syn::Result<Self> {
        if has_impl_trait(ty) {
            return Err(Error::new_spanned(
                ty,
                "a handler names the type of its message, since that is what is decoded; `impl Trait` names none",
            ));
        }
        if let Some(extractor) = extractor(ty) {
            return Err(Error::new_spanned(
                ty,
                format!(
                    "the first parameter is the message, and `{extractor}` is none; put it after the message: \
                     `async fn confirm(order: Order, …)`"
                ),
            ));
        }
        let Type::Reference(reference) = bare(ty) else {
            return Ok(Self::Owned(ty));
        };
        if let Some(mutability) = &reference.mutability {
            return Err(Error::new_spanned(
                mutability,
                "a message is lent for reading; to change it, take it by value: `mut order: Order`",
            ));
        }
        if let Some(lifetime) = reference.lifetime.as_ref().filter(|lifetime| lifetime.ident != "_") {
            return Err(Error::new_spanned(
                lifetime,
                "a message is lent for the time of one call; leave the lifetime out: `&Order`",
            ));
        }
        Ok(match bare(&reference.elem) {
            inner if is_bytes(inner) => Self::Bytes,
            Type::Slice(slice) => match bare(&slice.elem) {
                Type::Reference(element) if is_bytes(&element.elem) => Self::BytesBatch,
                _ => Self::Batch(&slice.elem),
            },
            inner if is_named(inner, "str") => Self::Text(ty),
            _ => Self::Lent(&reference.elem),
        })
    }

    pub(super) fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_) | Self::BytesBatch)
    }
}

/// The name of a well-known extractor, where the type is written as one.
fn extractor(ty: &Type) -> Option<&'static str> {
    let ty = match bare(ty) {
        Type::Reference(reference) => bare(&reference.elem),
        ty => ty,
    };
    let Type::Path(path) = ty else { return None };
    // A type of the user's that has such a name can be written with its module before it.
    if path.path.segments.len() != 1 {
        return None;
    }
    let segment = last_segment(ty)?;
    let generic = !segment.arguments.is_empty();
    ["State", "Headers", "Out", "HeaderMap", "CancellationToken"]
        .into_iter()
        .find(|name| segment.ident == name && (generic || ["CancellationToken", "HeaderMap"].contains(name)))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn form(ty: &Type) -> &'static str {
        match Message::read(ty) {
            Ok(Message::Owned(_)) => "owned",
            Ok(Message::Lent(_)) => "lent",
            Ok(Message::Text(_)) => "text",
            Ok(Message::Bytes) => "bytes",
            Ok(Message::Batch(_)) => "batch",
            Ok(Message::BytesBatch) => "bytes batch",
            Err(_) => "refused",
        }
    }

    #[test]
    fn the_form_is_told_by_how_the_type_is_written() {
        for (ty, expected) in [
            (parse_quote!(Order), "owned"),
            (parse_quote!(Event<'_>), "owned"),
            (parse_quote!(Vec<u8>), "owned"),
            (parse_quote!(&Order), "lent"),
            (parse_quote!(&'_ (Order)), "lent"),
            (parse_quote!(&[u8; 4]), "lent"),
            (parse_quote!(&str), "text"),
            (parse_quote!(&[u8]), "bytes"),
            (parse_quote!(&[Order]), "batch"),
            (parse_quote!(&[Event<'_>]), "batch"),
            (parse_quote!(&[&[u8]]), "bytes batch"),
            (parse_quote!(&mut Order), "refused"),
            (parse_quote!(&'static Order), "refused"),
            (parse_quote!(impl Message), "refused"),
            (parse_quote!(State<Shop>), "refused"),
            (parse_quote!(Headers<Origin>), "refused"),
            (parse_quote!(&HeaderMap), "refused"),
            (parse_quote!(State), "owned"),
            (parse_quote!(home::State<Lamp>), "owned"),
        ] {
            assert_eq!(form(&ty), expected, "{}", quote::ToTokens::to_token_stream(&ty));
        }
    }
}
