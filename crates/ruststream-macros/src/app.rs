//! `#[ruststream::app]`: a function that builds the app becomes the program.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, Item, ItemFn, PathArguments, ReturnType, Type};

use crate::types::{bare, is_unit, last_segment, type_arguments};

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
            let error = error.into_compile_error();
            let stub = stub(&function);
            quote! { #error #stub }
        }
    }
}

/// The function without its body, and a `main`, so that nothing else fails for the sake of an error.
fn stub(function: &ItemFn) -> TokenStream {
    let ItemFn { vis, sig, .. } = function;
    let function = (sig.ident != "main").then(|| {
        quote! {
            #[allow(unused_variables)]
            #vis #sig { ::core::unreachable!() }
        }
    });
    quote! {
        #function
        fn main() {}
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
    let asyncness = &sig.asyncness;
    let wait = asyncness.map(|_| quote! { .await });
    let cfgs = attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    // An app that is none is reported where the body ends.
    let end = block.stmts.last().map_or_else(|| output.span(), Spanned::span);
    let built = quote_spanned! { end => __built };
    // A closure keeps `return` and `?` of the body in the body; its type is what the builder ends as.
    let (returns, finish, error, app) = if let Some((unfinished, error)) = unfinished_result(output) {
        (
            Some(quote! { -> #unfinished }),
            quote! { #built.map(::core::convert::Into::into) },
            error.map_or_else(|| quote!(_), ToTokens::into_token_stream),
            quote! { #name() #wait },
        )
    } else {
        (
            None,
            quote! { ::core::convert::Into::into(#built) },
            quote! { ::core::convert::Infallible },
            quote! { ::core::result::Result::Ok(#name() #wait) },
        )
    };
    quote! {
        #(#attrs)*
        #vis #sig {
            #[allow(clippy::redundant_closure_call)]
            let __built = (#asyncness || #returns #block)() #wait;
            #finish
        }

        #(#cfgs)*
        fn main() -> ::std::process::ExitCode {
            ::ruststream::app::main::<_, _, #error>(|| async { #app })
        }
    }
}

/// `Result<_, E>` of `Result<RustStream, E>`, and `E` where that is written; `None` for what is no `Result`.
fn unfinished_result(output: &Type) -> Option<(Type, Option<&Type>)> {
    let segment = last_segment(output).filter(|segment| segment.ident == "Result")?;
    let error = type_arguments(segment).nth(1);
    let mut unfinished = bare(output).clone();
    if let Type::Path(path) = &mut unfinished
        && let Some(last) = path.path.segments.last_mut()
        && let PathArguments::AngleBracketed(arguments) = &mut last.arguments
    {
        let app = arguments.args.iter_mut().find_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })?;
        *app = syn::parse_quote!(_);
    }
    Some((unfinished, error))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn error(arguments: &TokenStream, function: &ItemFn) -> String {
        match check(arguments, function) {
            Ok(_) => panic!("this function should be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_app_of_a_result_is_left_open() {
        let open = |ty: Type| unfinished_result(&ty).map(|(ty, _)| ty.into_token_stream().to_string().replace(' ', ""));

        assert_eq!(
            open(parse_quote!(anyhow::Result<RustStream>)),
            Some("anyhow::Result<_>".to_owned())
        );
        assert_eq!(
            open(parse_quote!(Result<RustStream, Box<dyn Error>>)),
            Some("Result<_,Box<dynError>>".to_owned())
        );
        assert_eq!(open(parse_quote!(RustStream)), None);
    }

    #[test]
    fn what_cannot_be_a_program_is_refused() {
        let app: ItemFn = parse_quote! { fn app() -> RustStream {} };
        assert!(error(&quote!(name = "orders"), &app).contains("no arguments"));
        assert!(error(&quote!(), &parse_quote! { fn main() -> RustStream {} }).contains("rename"));
        assert!(error(&quote!(), &parse_quote! { fn app() {} }).contains("-> RustStream"));
        assert!(error(&quote!(), &parse_quote! { fn app(url: &str) -> RustStream {} }).contains("no parameters"));
        assert!(check(&quote!(), &app).is_ok());
    }
}
