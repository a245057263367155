//! Where a message is published, as its type says: a name, or a template that names fields of the message.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Expr, ExprLit, Fields, Lit, LitStr};

/// `Addressed` for the type; `destination` is what stands in `#[message(destination = ..)]`.
pub(crate) fn implement(input: &DeriveInput, destination: &Expr) -> syn::Result<TokenStream> {
    let made = match destination {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text), ..
        }) => from_text(input, text)?,
        Expr::Path(_) | Expr::Macro(_) => quote! {
            ::core::result::Result::Ok(::std::borrow::Cow::Borrowed(#destination))
        },
        other => {
            return Err(Error::new_spanned(
                other,
                "the name that the message goes to is a string: `#[message(destination = \"orders\")]`",
            ));
        }
    };
    let name = &input.ident;
    let (implemented, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #implemented ::ruststream::publish::Addressed for #name #arguments #bounds {
            fn destination(
                &self,
            ) -> ::core::result::Result<::std::borrow::Cow<'static, str>, ::ruststream::publish::InvalidDestination> {
                #made
            }
        }
    })
}

fn from_text(input: &DeriveInput, text: &LitStr) -> syn::Result<TokenStream> {
    let template = text.value();
    if template.trim().is_empty() {
        return Err(Error::new(
            text.span(),
            "the name that the message goes to is empty; name it as in `#[message(destination = \"orders\")]`",
        ));
    }
    let names = names(&template).map_err(|problem| Error::new(text.span(), problem))?;
    if names.is_empty() && !template.contains(['{', '}']) {
        return Ok(quote! { ::core::result::Result::Ok(::std::borrow::Cow::Borrowed(#text)) });
    }
    let values = names
        .iter()
        .map(|name| value(input, text, name))
        .collect::<syn::Result<Vec<_>>>()?;
    Ok(quote! { ::ruststream::publish::fill(#text, &[#(#values),*]) })
}

/// One name of the template, with the field that it stands for.
fn value(input: &DeriveInput, text: &LitStr, name: &str) -> syn::Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => Some(&fields.named),
            _ => None,
        },
        _ => None,
    };
    let Some(fields) = fields else {
        return Err(Error::new(
            text.span(),
            format!(
                "`{{{name}}}` names a field, and `{}` has no named fields; implement `Addressed` for it by hand",
                input.ident
            ),
        ));
    };
    let Some(field) = fields
        .iter()
        .find(|field| field.ident.as_ref().is_some_and(|ident| ident == name))
    else {
        let known: Vec<_> = fields
            .iter()
            .filter_map(|field| field.ident.as_ref())
            .map(|ident| format!("`{ident}`"))
            .collect();
        return Err(Error::new(
            text.span(),
            format!("`{}` has no field `{name}`; it has {}", input.ident, known.join(", ")),
        ));
    };
    let ident = format_ident!("{name}", span = field.ty.span());
    Ok(quote_spanned! { field.ty.span() => (#name, &self.#ident as &dyn ::core::fmt::Display) })
}

/// The names in braces, each once; the counterpart of `ruststream::publish::fill`, which fills them in.
fn names(template: &str) -> Result<Vec<String>, &'static str> {
    let alone = "a brace stands alone; write `{{` or `}}` for one that is meant";
    let mut names = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (brace, tail) = rest[at..].split_at(1);
        if let Some(tail) = tail.strip_prefix(brace) {
            rest = tail;
            continue;
        }
        let (name, tail) = match tail.split_once('}') {
            Some(found) if brace == "{" => found,
            _ => return Err(alone),
        };
        if name.is_empty() {
            return Err("`{}` names no field; write the name of one in the braces");
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        rest = tail;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn error(input: &DeriveInput, destination: &Expr) -> String {
        match implement(input, destination) {
            Ok(_) => panic!("this destination should be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_name_without_fields_is_kept_as_it_is() {
        let input = parse_quote! { enum Event { A } };
        for destination in [parse_quote!("events"), parse_quote!(topics::EVENTS)] {
            let written = implement(&input, &destination).expect("a good name").to_string();
            assert!(written.contains("Borrowed"), "{written}");
        }
    }

    #[test]
    fn fields_stand_for_their_names() {
        let input = parse_quote! { struct Order { region: String, shop: u8 } };
        let written = implement(&input, &parse_quote!("{region}.{{x}}.{shop}.{region}"));
        let written = written.expect("a good template").to_string();
        assert_eq!(written.matches("self .").count(), 2, "{written}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let order: DeriveInput = parse_quote! { struct Order { region: String, shop: u8 } };
        assert!(error(&order, &parse_quote!("a.{place}")).contains("no field `place`; it has `region`, `shop`"));
        assert!(error(&order, &parse_quote!("a.{region")).contains("a brace stands alone"));
        assert!(error(&order, &parse_quote!("a.{}")).contains("names no field"));
        assert!(error(&order, &parse_quote!(" ")).contains("empty"));
        assert!(error(&order, &parse_quote!(7)).contains("is a string"));
        assert!(error(&parse_quote! { struct Id(u64); }, &parse_quote!("a.{id}")).contains("no named fields"));
    }
}
