//! What stands in the parentheses of `#[subscriber(...)]`.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Ident, Lit, Token};

/// What is said of a handler where it is included, not on its attribute.
const OF_THE_APP: &[&str] = &[
    "batch",
    "codec",
    "dead_letter",
    "on_undecodable",
    "ordered_by",
    "prefetch",
    "retry",
    "timeout",
    "workers",
];

/// The settings of a subscriber.
pub(super) struct Settings {
    /// What it subscribes to: a string, a constant or a macro call.
    pub(super) name: Expr,
    pub(super) reply: Option<Reply>,
}

/// `reply = "..."`, or `reply` alone: to where the message asks for.
pub(super) struct Reply {
    pub(super) key: Ident,
    pub(super) destination: Option<Expr>,
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut name = None;
        let mut reply = None;
        while !input.is_empty() {
            if input.peek(Ident) && (input.peek2(Token![=]) || name.is_some()) {
                let key: Ident = input.parse()?;
                if key != "reply" {
                    return Err(unknown(&key));
                }
                if reply.is_some() {
                    return Err(Error::new(key.span(), "`reply` is set twice; keep one of them"));
                }
                let destination = if input.is_empty() || input.peek(Token![,]) {
                    None
                } else {
                    input.parse::<Token![=]>()?;
                    Some(text(
                        input,
                        "the name that replies go to is a string: `reply = \"receipts\"`",
                        "the name that replies go to is empty; name it as in `reply = \"receipts\"`, or write `reply` alone to \
                         answer where the message asks for",
                    )?)
                };
                reply = Some(Reply { key, destination });
            } else if name.is_none() {
                name = Some(text(
                    input,
                    "the name that the handler subscribes to is a string: `#[subscriber(\"orders\")]`",
                    "the name that the handler subscribes to is empty; name it as in `#[subscriber(\"orders\")]`",
                )?);
            } else {
                return Err(
                    input.error("after the name come settings: `#[subscriber(\"orders\", reply = \"receipts\")]`")
                );
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let name = name.ok_or_else(|| {
            Error::new(
                Span::call_site(),
                "a handler names what it subscribes to first: `#[subscriber(\"orders\")]`",
            )
        })?;
        Ok(Self { name, reply })
    }
}

fn unknown(key: &Ident) -> Error {
    let mut text = format!("unknown setting `{key}`; known: `reply`");
    if OF_THE_APP.contains(&key.to_string().as_str()) {
        text = format!("{text}\n`{key}` is set where the handler is included: `broker.include(..).{key}(..)`");
    }
    Error::new(key.span(), text)
}

/// A string that is not empty, or a constant or macro that stands for one.
fn text(input: ParseStream<'_>, other: &str, empty: &str) -> syn::Result<Expr> {
    let expr: Expr = input.parse()?;
    let mut inner = &expr;
    while let Expr::Group(group) = inner {
        inner = &group.expr;
    }
    match inner {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text), ..
        }) if text.value().trim().is_empty() => Err(Error::new(text.span(), empty)),
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) | Expr::Path(_) | Expr::Macro(_) => Ok(expr),
        _ => Err(Error::new_spanned(&expr, other)),
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn error(tokens: proc_macro2::TokenStream) -> String {
        match syn::parse2::<Settings>(tokens) {
            Ok(_) => panic!("these settings should be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_name_and_a_reply_are_read() {
        let settings = syn::parse2::<Settings>(quote! { "orders", reply = topics::RECEIPTS, }).expect("good settings");

        assert!(matches!(settings.name, Expr::Lit(_)));
        assert!(matches!(
            settings.reply,
            Some(Reply {
                destination: Some(Expr::Path(_)),
                ..
            })
        ));
    }

    #[test]
    fn a_setting_of_the_app_is_pointed_to_its_place() {
        assert!(error(quote! { "orders", workers = 8 }).contains("broker.include(..).workers(..)"));
        assert!(!error(quote! { "orders", replay = "a" }).contains("include"));
    }

    #[test]
    fn a_name_is_asked_for_before_settings() {
        assert!(error(quote! { reply = "receipts" }).contains("first"));
        assert!(error(quote! {}).contains("first"));
    }

    #[test]
    fn a_reply_may_go_where_the_message_asks_for() {
        let settings = syn::parse2::<Settings>(quote! { "quotes", reply }).expect("good settings");

        assert!(matches!(settings.reply, Some(Reply { destination: None, .. })));
    }

    #[test]
    fn blank_names_are_refused() {
        assert!(error(quote! { " " }).contains("empty"));
        assert!(error(quote! { "orders", reply = "" }).contains("empty"));
    }

    #[test]
    fn what_is_no_string_is_refused() {
        assert!(error(quote! { 7 }).contains("is a string"));
        assert!(error(quote! { "orders", "receipts" }).contains("after the name"));
    }
}
