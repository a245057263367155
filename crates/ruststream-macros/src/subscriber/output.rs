//! What a handler returns, and what becomes of it.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Ident, Type};

use super::settings::{Reply, Settings};
use super::signature::Signature;
use crate::types::{has_impl_trait, is_named, is_unit, last_segment, type_arguments};

/// Refuses a reply where there is none to send.
pub(super) fn check(settings: &Settings, signature: &Signature<'_>) -> syn::Result<()> {
    let Some(reply) = &settings.reply else { return Ok(()) };
    if signature.message.is_batch() {
        return Err(Error::new(
            reply.key.span(),
            "a batch handler has no reply; drop `reply` and publish from the handler with a parameter `replies: Out<Receipt>`, \
             or take one message at a time",
        ));
    }
    let nothing = "the handler returns nothing to reply with; return the reply: `-> Receipt` or `-> Result<Receipt, E>`, or \
                   drop `reply`";
    let Some(output) = signature.output else {
        return Err(Error::new(reply.key.span(), nothing));
    };
    let value = Returned::of(output).value.unwrap_or(output);
    if is_unit(value) {
        return Err(Error::new_spanned(value, nothing));
    }
    if is_named(value, "HandlerOutcome") {
        return Err(Error::new_spanned(
            value,
            "an outcome is no reply; return the reply, and an outcome as its error: `-> Result<Receipt, HandlerOutcome>`",
        ));
    }
    Ok(())
}

/// What a return type says of the value in it.
struct Returned<'a> {
    /// Whether it is a `Result`.
    fallible: bool,
    /// The type of the value, of its `Ok` in a `Result`, where that is written.
    value: Option<&'a Type>,
    /// The type of its `Err`, where that is written.
    error: Option<&'a Type>,
}

impl<'a> Returned<'a> {
    fn of(output: &'a Type) -> Self {
        match last_segment(output).filter(|segment| segment.ident == "Result") {
            Some(segment) => {
                let mut written = type_arguments(segment);
                Self {
                    fallible: true,
                    value: written.next(),
                    error: written.next(),
                }
            }
            None => Self {
                fallible: false,
                value: Some(output),
                error: None,
            },
        }
    }
}

/// The outcome of `called`, which is what the handler returned.
pub(super) fn outcome(output: Option<&Type>, reply: Option<&Reply>, called: &TokenStream) -> TokenStream {
    let value = |ty: Option<&Type>| match reply {
        Some(Reply { destination, .. }) => {
            let destination = if let Some(destination) = destination {
                quote!(::core::option::Option::Some(#destination))
            } else {
                quote!(::core::option::Option::None)
            };
            converted(ty, "IntoReply", "into_reply", &quote!(__value, __call, #destination))
        }
        None => converted(ty, "IntoOutcome", "into_outcome", &quote!(__value)),
    };
    told_apart(output, called, value, |failure| failure)
}

/// The outcomes of `called`, which is what a batch handler returned.
pub(super) fn batch_outcome(output: Option<&Type>, called: &TokenStream) -> TokenStream {
    let value = |ty: Option<&Type>| converted(ty, "IntoBatchOutcome", "into_batch_outcome", &quote!(__value));
    told_apart(output, called, value, |failure| {
        quote! { ::ruststream::handler::BatchOutcome::All(#failure) }
    })
}

/// A `Result` is told apart here, so that each of its two types is named in an error of its own.
fn told_apart(
    output: Option<&Type>,
    called: &TokenStream,
    value: impl Fn(Option<&Type>) -> TokenStream,
    failed: impl Fn(TokenStream) -> TokenStream,
) -> TokenStream {
    let unit = syn::parse_quote!(());
    let returned = Returned::of(output.unwrap_or(&unit));
    let value = value(returned.value);
    if returned.fallible {
        let failure = failed(converted(
            returned.error,
            "IntoFailure",
            "into_failure",
            &quote!(__error),
        ));
        quote! {
            match #called {
                ::core::result::Result::Ok(__value) => #value,
                ::core::result::Result::Err(__error) => #failure,
            }
        }
    } else {
        quote! {{
            let __value = #called;
            #value
        }}
    }
}

/// A conversion that names the type where it is written, so that an error points there.
fn converted(ty: Option<&Type>, conversion: &str, method: &str, arguments: &TokenStream) -> TokenStream {
    let conversion = Ident::new(conversion, Span::call_site());
    let method = Ident::new(method, Span::call_site());
    if let Some(ty) = ty.filter(|ty| !has_impl_trait(ty)) {
        quote_spanned! { ty.span() => <#ty as ::ruststream::handler::#conversion>::#method(#arguments) }
    } else {
        quote! { ::ruststream::handler::#conversion::#method(#arguments) }
    }
}
