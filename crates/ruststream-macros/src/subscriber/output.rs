//! What a handler returns, and what becomes of it.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Type};

use super::settings::{Reply, Settings};
use super::signature::Signature;
use crate::types::{first_argument, has_impl_trait, is_named, is_unit, last_segment};

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
}

impl<'a> Returned<'a> {
    fn of(output: &'a Type) -> Self {
        match last_segment(output).filter(|segment| segment.ident == "Result") {
            Some(segment) => Self {
                fallible: true,
                value: first_argument(segment),
            },
            None => Self {
                fallible: false,
                value: Some(output),
            },
        }
    }
}

/// The outcome of `value`, which is what the handler returned.
pub(super) fn outcome(output: Option<&Type>, reply: Option<&Reply>, value: &TokenStream) -> TokenStream {
    let (Some(reply), Some(output)) = (reply, output) else {
        return converted(output, &quote!(IntoOutcome), &quote!(into_outcome), value);
    };
    let returned = Returned::of(output);
    let destination = &reply.destination;
    let send = if let Some(ty) = returned.value.filter(|ty| !has_impl_trait(ty)) {
        quote_spanned! { ty.span() => __call.reply::<#ty>(#destination, &__reply) }
    } else {
        quote! { __call.reply(#destination, &__reply) }
    };
    if returned.fallible {
        let failure = quote_spanned! { output.span() => ::ruststream::handler::IntoFailure::into_failure(__error) };
        quote! {
            match #value {
                ::core::result::Result::Ok(__reply) => #send,
                ::core::result::Result::Err(__error) => #failure,
            }
        }
    } else {
        quote! {{
            let __reply = #value;
            #send
        }}
    }
}

/// The outcomes of `value`, which is what a batch handler returned.
pub(super) fn batch_outcome(output: Option<&Type>, value: &TokenStream) -> TokenStream {
    converted(output, &quote!(IntoBatchOutcome), &quote!(into_batch_outcome), value)
}

/// `value` by a conversion that is named together with the written type, so that an error points there.
fn converted(
    output: Option<&Type>,
    conversion: &TokenStream,
    method: &TokenStream,
    value: &TokenStream,
) -> TokenStream {
    if let Some(ty) = output.filter(|ty| !has_impl_trait(ty) && !matches!(ty, Type::Never(_))) {
        quote_spanned! { ty.span() => <#ty as ::ruststream::handler::#conversion>::#method(#value) }
    } else {
        quote! { ::ruststream::handler::#conversion::#method(#value) }
    }
}
