//! The signature of a handler function.

use quote::ToTokens;
use syn::{Error, FnArg, GenericParam, ReturnType, Type};

use super::message::Message;

/// What a handler function takes and gives.
pub(super) struct Signature<'a> {
    pub(super) message: Message<'a>,
    /// The types of the parameters after the message.
    pub(super) extractors: Vec<&'a Type>,
    /// Nothing where no type is written.
    pub(super) output: Option<&'a Type>,
}

impl<'a> Signature<'a> {
    pub(super) fn read(signature: &'a syn::Signature) -> syn::Result<Self> {
        check_kind(signature)?;
        check_generics(signature)?;
        let mut parameters = Vec::new();
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    return Err(Error::new_spanned(
                        receiver,
                        "a handler is a function of its own, without `self`; take what it needs from the state of the app: \
                         `State(shop): State<Shop>`",
                    ));
                }
                FnArg::Typed(typed) => parameters.push(&*typed.ty),
            }
        }
        let mut parameters = parameters.into_iter();
        let Some(message) = parameters.next() else {
            return Err(Error::new(
                signature.paren_token.span.join(),
                format!(
                    "a handler takes the message as its first parameter: `async fn {}(order: Order)`",
                    signature.ident
                ),
            ));
        };
        Ok(Self {
            message: Message::read(message)?,
            extractors: parameters.map(check_extractor).collect::<syn::Result<_>>()?,
            output: match &signature.output {
                ReturnType::Default => None,
                ReturnType::Type(_, ty) if matches!(**ty, Type::Never(_)) => {
                    return Err(Error::new_spanned(
                        ty,
                        "a handler comes to an end, which is what settles its message; return `()`, an outcome or a `Result`",
                    ));
                }
                ReturnType::Type(_, ty) => Some(ty),
            },
        })
    }
}

fn check_kind(signature: &syn::Signature) -> syn::Result<()> {
    let refuse = |token: &dyn ToTokens, text: &str| Err(Error::new_spanned(token.to_token_stream(), text));
    if let Some(constness) = &signature.constness {
        return refuse(constness, "a handler runs with the service; remove `const`");
    }
    if let Some(unsafety) = &signature.unsafety {
        return refuse(
            unsafety,
            "a handler is called by the runtime, which knows of no precondition; remove `unsafe`",
        );
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi, "a handler is called from Rust; remove `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic, "a handler has a fixed list of parameters; remove `...`");
    }
    if signature.asyncness.is_none() {
        return Err(Error::new(
            signature.fn_token.span,
            format!("a handler is an `async fn`; write `async fn {}`", signature.ident),
        ));
    }
    Ok(())
}

fn check_generics(signature: &syn::Signature) -> syn::Result<()> {
    let generics = &signature.generics;
    match generics.params.first() {
        Some(GenericParam::Lifetime(lifetime)) => Err(Error::new_spanned(
            lifetime,
            "a handler has no lifetime parameters; leave lifetimes out, or write `'_`: `event: Event<'_>`",
        )),
        Some(parameter) => Err(Error::new_spanned(
            parameter,
            "a handler cannot be generic, since its message is decoded into one type; write a handler for each type that \
             calls a generic function",
        )),
        None if generics.where_clause.is_some() => Err(Error::new_spanned(
            &generics.where_clause,
            "a handler cannot be generic, so it has nothing to bound; remove `where`",
        )),
        None => Ok(()),
    }
}

fn check_extractor(ty: &Type) -> syn::Result<&Type> {
    if crate::types::has_impl_trait(ty) {
        return Err(Error::new_spanned(
            ty,
            "a handler names the types of its parameters, since they say what is drawn from the call; `impl Trait` names none",
        ));
    }
    Ok(ty)
}
