//! The other attributes of a handler function: which of its items each belongs to.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// The attributes of a handler function, sorted by where they go.
pub(super) struct Attributes<'a> {
    /// The doc comment, for the struct.
    pub(super) docs: Vec<&'a Attribute>,
    /// For every item that comes of the function: `cfg` and the levels of lints.
    pub(super) everywhere: Vec<&'a Attribute>,
    /// For the function itself.
    pub(super) function: Vec<TokenStream>,
    /// The text of the doc comment.
    pub(super) description: String,
}

impl<'a> Attributes<'a> {
    pub(super) fn sort(attributes: &'a [Attribute], handler: &str) -> Self {
        let mut sorted = Self {
            docs: Vec::new(),
            everywhere: Vec::new(),
            function: Vec::new(),
            description: String::new(),
        };
        let mut lines = Vec::new();
        for attribute in attributes {
            let path = attribute.path();
            if path.is_ident("doc") {
                sorted.docs.push(attribute);
                lines.extend(doc_line(attribute));
            } else if ["cfg", "allow", "warn", "deny", "forbid"]
                .iter()
                .any(|name| path.is_ident(name))
            {
                sorted.everywhere.push(attribute);
            } else if path.segments.last().is_some_and(|last| last.ident == "instrument") {
                sorted.function.push(instrument(attribute, handler));
            } else {
                sorted.function.push(attribute.to_token_stream());
            }
        }
        lines.join("\n").trim().clone_into(&mut sorted.description);
        sorted
    }
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(value) = &attribute.meta else {
        return None;
    };
    let Expr::Lit(ExprLit {
        lit: Lit::Str(text), ..
    }) = &value.value
    else {
        return None;
    };
    let text = text.value();
    Some(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned())
}

/// `#[instrument]` names its span after the function, which is the handler's no more: the name is written out.
fn instrument(attribute: &Attribute, handler: &str) -> TokenStream {
    let path = attribute.path();
    match &attribute.meta {
        Meta::Path(_) => quote! { #[#path(name = #handler)] },
        Meta::List(list) if !names_its_span(&list.tokens) => {
            let tokens = &list.tokens;
            quote! { #[#path(name = #handler, #tokens)] }
        }
        _ => attribute.to_token_stream(),
    }
}

fn names_its_span(tokens: &TokenStream) -> bool {
    let mut tokens = tokens.clone().into_iter().peekable();
    if matches!(tokens.peek(), Some(TokenTree::Literal(_))) {
        return true;
    }
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Ident(ident) if ident == "name")
            && matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '=')
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use syn::{ItemFn, parse_quote};

    use super::*;

    #[test]
    fn each_attribute_finds_its_place() {
        let function: ItemFn = parse_quote! {
            /// Confirms an order.
            ///
            ///   indented
            #[cfg(unix)]
            #[allow(unused)]
            #[expect(clippy::too_many_arguments)]
            #[inline]
            async fn confirm() {}
        };

        let sorted = Attributes::sort(&function.attrs, "confirm");

        assert_eq!(sorted.docs.len(), 3);
        assert_eq!(sorted.everywhere.len(), 2);
        assert_eq!(sorted.function.len(), 2);
        assert_eq!(sorted.description, "Confirms an order.\n\n  indented");
    }

    #[test]
    fn a_span_is_named_after_the_handler() {
        for (attribute, expected) in [
            (quote!(#[instrument]), quote!(#[instrument(name = "confirm")])),
            (
                quote!(#[tracing::instrument(skip_all, fields(id = order.id))]),
                quote!(#[tracing::instrument(name = "confirm", skip_all, fields(id = order.id))]),
            ),
            (
                quote!(#[instrument(skip(a), name = "b")]),
                quote!(#[instrument(skip(a), name = "b")]),
            ),
            (quote!(#[instrument("b")]), quote!(#[instrument("b")])),
        ] {
            let function: ItemFn = parse_quote! { #attribute async fn confirm() {} };
            assert_eq!(
                instrument(&function.attrs[0], "confirm").to_string(),
                expected.to_string()
            );
        }
    }
}
