//! `#[subscriber]`: an `async fn` becomes a handler with its subscription.

mod attributes;
mod expand;
mod message;
mod output;
mod settings;
mod signature;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{Error, Item, ItemFn};

use self::attributes::Attributes;
use self::settings::Settings;
use self::signature::Signature;

/// The expansion of the attribute, or the errors with enough of a handler beside them that nothing else fails for their sake.
pub(crate) fn expand(settings: TokenStream, item: &TokenStream) -> TokenStream {
    let function = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(function)) => function,
        Ok(other) => {
            let error = Error::new_spanned(&other, "`#[subscriber]` goes on an `async fn`").into_compile_error();
            return quote! { #error #other };
        }
        Err(error) => {
            let error = error.into_compile_error();
            return quote! { #error #item };
        }
    };
    match read(settings, &function) {
        Ok(handler) => handler.into_token_stream(),
        Err(error) => {
            let stub = expand::stub(&function);
            let error = error.into_compile_error();
            quote! { #error #stub }
        }
    }
}

/// A handler function that was understood.
struct Subscriber<'a> {
    function: &'a ItemFn,
    name: String,
    attributes: Attributes<'a>,
    settings: Settings,
    signature: Signature<'a>,
}

fn read(settings: TokenStream, function: &ItemFn) -> syn::Result<Subscriber<'_>> {
    let settings = syn::parse2::<Settings>(settings);
    let signature = Signature::read(&function.sig);
    let (settings, signature) = match (settings, signature) {
        (Ok(settings), Ok(signature)) => (settings, signature),
        (Err(mut error), Err(other)) => {
            error.combine(other);
            return Err(error);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    output::check(&settings, &signature)?;
    let name = function.sig.ident.unraw().to_string();
    Ok(Subscriber {
        attributes: Attributes::sort(&function.attrs, &name),
        function,
        name,
        settings,
        signature,
    })
}
