//! `#[ruststream::app]`: a function that builds the app becomes the program.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, Item, ItemFn, PathArguments, ReturnType, Type};

use crate::types::{bare, is_unit, last_segment};

/// The expansion of the attribute, or the errors beside the function as it was.
pub(crate) fn expand(arguments: &TokenStream, item: &TokenStream) -> TokenStream {
    let function = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(function)) => function,
        Ok(other) => {
            let error = Error::new_spanned(
                &other,
                "`#[ruststream::app]` goes on a function: `fn app() -> RustStream`",
            );
            return refused(&error, item);
        }
        Err(error) => return refused(&error, item),
    };
    match check(arguments, &function) {
        Ok(output) => program(&function, output),
        Err(error) => {
            // Beside a `main` of the user's none is written; without one, rustc would miss it and say so too.
            let main = (function.sig.ident != "main").then(|| quote! { fn main() {} });
            let error = error.into_compile_error();
            quote! { #error #item #main }
        }
    }
}

fn refused(error: &Error, item: &TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    quote! { #error #item }
}

/// Refuses what cannot become a program; the return type otherwise.
fn check<'a>(arguments: &TokenStream, function: &'a ItemFn) -> syn::Result<&'a Type> {
    let signature = &function.sig;
    if !arguments.is_empty() {
        return Err(Error::new_spanned(
            arguments,
            "`#[ruststream::app]` takes no arguments; name and version are set in the app: \
             `RustStream::new(AppInfo::new(\"orders\", \"1.0.0\"))`",
        ));
    }
    if signature.ident == "main" {
        return Err(Error::new(
            signature.ident.span(),
            "`#[ruststream::app]` writes `main` itself; rename this function: `fn app() -> RustStream`",
        ));
    }
    if !signature.inputs.is_empty() {
        return Err(Error::new_spanned(
            &signature.inputs,
            "the function that builds the app takes no parameters; read settings from the environment or the state",
        ));
    }
    if signature.generics.lt_token.is_some() || signature.generics.where_clause.is_some() {
        return Err(Error::new_spanned(
            &signature.generics,
            "the function that builds the app cannot be generic; remove its parameters",
        ));
    }
    if let Some(constness) = &signature.constness {
        return Err(Error::new_spanned(
            constness,
            "an app is built when the program runs; remove `const`",
        ));
    }
    if let Some(unsafety) = &signature.unsafety {
        return Err(Error::new_spanned(
            unsafety,
            "`main` calls this function; remove `unsafe`",
        ));
    }
    match &signature.output {
        ReturnType::Type(_, ty) if !is_unit(ty) => Ok(ty),
        _ => Err(Error::new(
            signature.ident.span(),
            format!(
                "the function returns nothing; return the app: `fn {}() -> RustStream` or `-> Result<RustStream, E>`",
                signature.ident
            ),
        )),
    }
}

fn program(function: &ItemFn, output: &Type) -> TokenStream {
    let ItemFn { attrs, vis, sig, block } = function;
    let name = &sig.ident;
    let is_async = sig.asyncness.is_some();
    let wait = is_async.then(|| quote! { .await });
    let asyncness = &sig.asyncness;
    let cfgs = attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    // A closure keeps `return` and `?` of the body in the body; its type is what the builder ends as.
    let (body, app) = if let Some(unfinished) = unfinished_result(output) {
        (
            quote! { let __built = (#asyncness || -> #unfinished #block)() #wait; },
            quote! { #name() #wait },
        )
    } else {
        (
            quote! { let __built = (#asyncness || #block)() #wait; },
            quote! {
                ::core::result::Result::<_, ::core::convert::Infallible>::Ok(#name() #wait)
            },
        )
    };
    let convert = quote_spanned! { output.span() => ::core::convert::Into::into };
    let finish = if unfinished_result(output).is_some() {
        quote! { __built.map(#convert) }
    } else {
        quote! { #convert(__built) }
    };
    quote! {
        #(#attrs)*
        #vis #sig {
            #[allow(clippy::redundant_closure_call)]
            #body
            #finish
        }

        #(#cfgs)*
        fn main() -> ::std::process::ExitCode {
            ::ruststream::app::main(|| async { #app })
        }
    }
}

/// `Result<_, E>` of `Result<RustStream, E>`; `None` for what is no `Result`.
fn unfinished_result(output: &Type) -> Option<Type> {
    if last_segment(output)?.ident != "Result" {
        return None;
    }
    let Type::Path(mut path) = bare(output).clone() else {
        return None;
    };
    let PathArguments::AngleBracketed(arguments) = &mut path.path.segments.last_mut()?.arguments else {
        return None;
    };
    let first = arguments
        .args
        .iter_mut()
        .find(|argument| matches!(argument, GenericArgument::Type(_)))?;
    *first = GenericArgument::Type(Type::Infer(syn::TypeInfer {
        underscore_token: syn::Token![_](Span::call_site()),
    }));
    Some(Type::Path(path))
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;
    use syn::parse_quote;

    use super::*;

    fn error(arguments: TokenStream, function: &ItemFn) -> String {
        match check(&arguments, function) {
            Ok(_) => panic!("this function should be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_app_of_a_result_is_left_open() {
        let open = |ty: Type| unfinished_result(&ty).map(|ty| ty.into_token_stream().to_string());

        assert_eq!(
            open(parse_quote!(anyhow::Result<RustStream>)),
            Some(quote!(anyhow::Result<_>).to_string())
        );
        assert_eq!(
            open(parse_quote!(Result<RustStream, Box<dyn Error>>)),
            Some(quote!(Result<_, Box<dyn Error>>).to_string())
        );
        assert_eq!(open(parse_quote!(RustStream)), None);
    }

    #[test]
    fn what_cannot_be_a_program_is_refused() {
        let app: ItemFn = parse_quote! { fn app() -> RustStream {} };
        assert!(error(quote!(name = "orders"), &app).contains("no arguments"));
        assert!(error(quote!(), &parse_quote! { fn main() -> RustStream {} }).contains("rename"));
        assert!(error(quote!(), &parse_quote! { fn app() {} }).contains("-> RustStream"));
        assert!(error(quote!(), &parse_quote! { fn app(url: &str) -> RustStream {} }).contains("no parameters"));
        assert!(check(&quote!(), &app).is_ok());
    }
}
