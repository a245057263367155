//! `#[derive(Message)]`: where a message is published, and an enum of several types of message, told apart by a header.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, Lifetime, LifetimeParam, LitStr, Token, Type, Variant,
};

/// What to write on an enum.
const ON_THE_ENUM: &str = "name the header that tells the messages apart: `#[message(header = \"kind\")]`";

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    implementation(input).unwrap_or_else(|error| {
        let errors = error.to_compile_error();
        // What else can be said of such an enum is said, so that its uses are no errors too.
        let stub = matches!(input.data, Data::Enum(_)).then(|| implement(input, &quote!(::core::unreachable!()), &[]));
        quote! { #errors #stub }
    })
}

fn implementation(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Said { header, destination } = said(input)?;
    let addressed = match &destination {
        Some(destination) => Some(crate::destination::implement(input, destination)?),
        None => None,
    };
    let read = match (&input.data, header) {
        (_, None) if addressed.is_some() => None,
        (Data::Enum(data), Some(header)) => Some(variants(input, data, &header)?),
        (Data::Enum(_), None) => return Err(Error::new(input.ident.span(), ON_THE_ENUM)),
        (_, Some(header)) => {
            return Err(Error::new(
                header.span(),
                "a header tells the variants of an enum apart; a message of one type needs `#[derive(Deserialize)]` alone",
            ));
        }
        (_, None) => {
            return Err(Error::new(
                input.ident.span(),
                "nothing is said of this message: say where it is published, `#[message(destination = \"orders\")]`; to be read, \
                 a message of one type needs `#[derive(Deserialize)]` alone",
            ));
        }
    };
    Ok(quote! { #addressed #read })
}

fn variants(input: &DeriveInput, data: &syn::DataEnum, header: &LitStr) -> syn::Result<TokenStream> {
    let lifetime = lifetime(input);
    let mut arms = Vec::new();
    let mut rest = None;
    let mut values: Vec<LitStr> = Vec::new();
    let mut read = Vec::new();
    for variant in &data.variants {
        let (value, ty) = (Value::of(variant)?, content(variant)?);
        let name = &variant.ident;
        let made = match ty {
            None => quote! { Self::#name },
            Some(ty) => {
                read.push(ty);
                let content = quote_spanned! { ty.span() =>
                    <#ty as ::ruststream::handler::Message<#lifetime>>::read(__incoming, __codec)?
                };
                quote! { Self::#name(#content) }
            }
        };
        match value {
            Value::Other(other) if rest.is_some() => {
                return Err(Error::new(
                    other.span(),
                    "two variants are for all other messages; keep one of them",
                ));
            }
            Value::Other(_) => rest = Some(quote! { _ => ::core::result::Result::Ok(#made), }),
            Value::Is(value) if values.iter().any(|other| other.value() == value.value()) => {
                return Err(Error::new(
                    value.span(),
                    format!("two variants are for the value {:?}; give each its own", value.value()),
                ));
            }
            Value::Is(value) => {
                let bytes = syn::LitByteStr::new(value.value().as_bytes(), value.span());
                arms.push(quote! { ::core::option::Option::Some(#bytes) => ::core::result::Result::Ok(#made), });
                values.push(value);
            }
        }
    }
    let rest = rest.unwrap_or_else(|| refusal(&input.ident, header, &values));
    let body = quote! {
        match __incoming.headers().get(#header) {
            #(#arms)*
            #rest
        }
    };
    Ok(implement(input, &body, &read))
}

/// What becomes of a message that no variant is for.
fn refusal(name: &Ident, header: &LitStr, values: &[LitStr]) -> TokenStream {
    let header = header.value();
    let known: Vec<_> = values.iter().map(LitStr::value).collect();
    let known = known.join(", ").replace('{', "{{").replace('}', "}}");
    let missing = format!("the header `{header}`, which says which {name} a message is, is missing");
    let unknown = format!("no {name} has {{:?}} in the header `{header}`; known: {known}");
    quote! {
        __other => ::core::result::Result::Err(::ruststream::codec::CodecError::new(match __other {
            ::core::option::Option::None => ::std::string::String::from(#missing),
            ::core::option::Option::Some(__value) => {
                ::std::format!(#unknown, ::std::string::String::from_utf8_lossy(__value))
            }
        })),
    }
}

fn implement(input: &DeriveInput, body: &TokenStream, read: &[&Type]) -> TokenStream {
    let name = &input.ident;
    let lifetime = lifetime(input);
    let mut generics = input.generics.clone();
    if generics.type_params().next().is_some() {
        let predicates = &mut generics.make_where_clause().predicates;
        predicates.extend::<Vec<syn::WherePredicate>>(
            read.iter()
                .map(|ty| syn::parse_quote! { #ty: ::ruststream::handler::Message<#lifetime> })
                .collect(),
        );
    }
    if generics.lifetimes().next().is_none() {
        generics.params.insert(0, LifetimeParam::new(lifetime.clone()).into());
    }
    let (implemented, _, bounds) = generics.split_for_impl();
    let (_, arguments, _) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #implemented ::ruststream::handler::Message<#lifetime> for #name #arguments #bounds {
            fn read(
                __incoming: ::ruststream::message::Incoming<#lifetime>,
                __codec: &::ruststream::codec::Codec,
            ) -> ::core::result::Result<Self, ::ruststream::codec::CodecError> {
                #body
            }
        }
    }
}

/// The lifetime of the payload: the enum's own, where it has one.
fn lifetime(input: &DeriveInput) -> Lifetime {
    match input.generics.lifetimes().next() {
        Some(own) => own.lifetime.clone(),
        None => Lifetime::new("'__payload", proc_macro2::Span::call_site()),
    }
}

/// What `#[message(..)]` on the type says.
#[derive(Default)]
struct Said {
    header: Option<LitStr>,
    destination: Option<Expr>,
}

impl Parse for Said {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut said = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse().map_err(|error| Error::new(error.span(), ON_THE_ENUM))?;
            let twice = if key == "header" {
                input.parse::<Token![=]>()?;
                said.header.replace(input.parse()?).is_some()
            } else if key == "destination" {
                input.parse::<Token![=]>()?;
                said.destination.replace(input.parse()?).is_some()
            } else {
                return Err(Error::new(
                    key.span(),
                    format!("unknown setting `{key}`; known: `header`, `destination`; {ON_THE_ENUM}"),
                ));
            };
            if twice {
                return Err(Error::new(
                    key.span(),
                    format!("`{key}` is set twice; keep one of them"),
                ));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(said)
    }
}

fn said(input: &DeriveInput) -> syn::Result<Said> {
    match attribute(&input.attrs)? {
        Some(attribute) => attribute.parse_args(),
        None => Ok(Said::default()),
    }
}

/// Which messages a variant is for.
enum Value {
    /// Those with this value in the header.
    Is(LitStr),
    /// All others.
    Other(Ident),
}

impl Value {
    fn of(variant: &Variant) -> syn::Result<Self> {
        match attribute(&variant.attrs)? {
            Some(attribute) => attribute.parse_args(),
            None => Ok(Self::Is(LitStr::new(&variant.ident.to_string(), variant.ident.span()))),
        }
    }
}

impl Parse for Value {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return Ok(Self::Is(input.parse()?));
        }
        let span = input.span();
        match input.parse::<Ident>() {
            Ok(other) if other == "other" => Ok(Self::Other(other)),
            _ => Err(Error::new(
                span,
                "a variant names the value of the header that it is for, `#[message(\"placed\")]`, or is for all other messages, \
                 `#[message(other)]`",
            )),
        }
    }
}

fn attribute(attributes: &[Attribute]) -> syn::Result<Option<&Attribute>> {
    let mut found = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("message"));
    let first = found.next();
    match found.next() {
        Some(second) => Err(Error::new_spanned(
            second,
            "`message` is written twice; keep one of them",
        )),
        None => Ok(first),
    }
}

/// The message in a variant; none in one without fields.
fn content(variant: &Variant) -> syn::Result<Option<&Type>> {
    match &variant.fields {
        Fields::Unit => Ok(None),
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => Ok(Some(&fields.unnamed[0].ty)),
        _ => Err(Error::new_spanned(
            variant,
            format!(
                "a variant holds one message, in a type of its own: `{0}({0})`",
                variant.ident
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn error(input: &DeriveInput) -> String {
        match implementation(input) {
            Ok(_) => panic!("this enum should be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_lifetime_of_the_enum_is_that_of_the_payload() {
        let input = parse_quote! {
            #[message(header = "kind")]
            enum Event<'p> { Placed(Placed<'p>), #[message(other)] Other }
        };
        let written = implementation(&input).expect("a good enum").to_string();
        assert!(written.contains("Message < 'p > for Event < 'p >"), "{written}");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(error(&parse_quote! { enum Event { A(A) } }).contains("header = \"kind\""));
        assert!(
            error(&parse_quote! { #[message(name = "kind")] enum Event { A(A) } }).contains("unknown setting `name`")
        );
        assert!(error(&parse_quote! { struct Event; }).contains("derive(Deserialize)"));
    }

    #[test]
    fn variants_are_told_apart() {
        let twice = parse_quote! { #[message(header = "kind")] enum Event { #[message("B")] A(A), B(B) } };
        assert!(error(&twice).contains("two variants are for the value \"B\""));
        let others =
            parse_quote! { #[message(header = "kind")] enum Event { #[message(other)] A, #[message(other)] B } };
        assert!(error(&others).contains("two variants"));
        let fields = parse_quote! { #[message(header = "kind")] enum Event { A { id: u64 } } };
        assert!(error(&fields).contains("`A(A)`"));
    }
}
