//! The items that a handler function becomes.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, ItemFn, Lifetime, Type};

use super::Subscriber;
use super::message::Message;
use super::output::{batch_outcome, outcome};
use crate::types::with_lifetime;

/// A handler of the same name that does nothing, for a function with errors.
pub(super) fn stub(function: &ItemFn) -> TokenStream {
    let name = &function.sig.ident;
    let visibility = &function.vis;
    quote! {
        #[allow(non_camel_case_types, missing_docs, dead_code)]
        #[derive(Debug, Clone, Copy)]
        #visibility struct #name;

        #[automatically_derived]
        impl<__State> ::ruststream::handler::Subscriber<__State> for #name {
            fn definition(&self) -> ::ruststream::handler::Definition {
                ::core::unreachable!()
            }

            fn into_handler<__Layers: ::ruststream::handler::Layers>(
                self,
                _: ::ruststream::handler::Mounting<__State, __Layers>,
            ) -> ::ruststream::handler::Handler {
                ::core::unreachable!()
            }
        }
    }
}

impl ToTokens for Subscriber<'_> {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let name = &self.function.sig.ident;
        let everywhere = &self.attributes.everywhere;
        let bounds = self.bounds();
        let item = self.item();
        let definition = self.definition();
        let (kind, erase, call) = if self.signature.message.is_batch() {
            (quote!(Batched), quote!(batched), self.batched())
        } else {
            (quote!(Single), quote!(single), self.single())
        };
        tokens.extend(item);
        // What an app lacks for the handler is reported at the implementation: it has the place of the handler's name.
        tokens.extend(quote_spanned! { name.span() =>
            #(#everywhere)*
            #[automatically_derived]
            impl<__State> ::ruststream::handler::Subscriber<__State> for #name
            where
                #bounds
            {
                fn definition(&self) -> ::ruststream::handler::Definition {
                    #definition
                }

                fn into_handler<__Layers: ::ruststream::handler::Layers>(
                    self,
                    __mounting: ::ruststream::handler::Mounting<__State, __Layers>,
                ) -> ::ruststream::handler::Handler {
                    __mounting.#erase(self)
                }
            }

            #(#everywhere)*
            #[automatically_derived]
            impl<__State> ::ruststream::handler::#kind<__State> for #name
            where
                #bounds
            {
                #call
            }
        });
    }
}

impl Subscriber<'_> {
    /// The struct, with the function itself in it.
    fn item(&self) -> TokenStream {
        let docs = &self.attributes.docs;
        let everywhere = &self.attributes.everywhere;
        let attributes = &self.attributes.function;
        let visibility = &self.function.vis;
        let name = &self.function.sig.ident;
        let inputs = &self.function.sig.inputs;
        let output = &self.function.sig.output;
        let body = &self.function.block;
        quote! {
            #(#docs)*
            #(#everywhere)*
            #[allow(non_camel_case_types)]
            #[derive(Debug, Clone, Copy)]
            #visibility struct #name;

            #(#everywhere)*
            const _: () = {
                // No binding can take the name of a unit struct, but any can that of a function: it hides the struct here, so
                // that a handler `order` can have a parameter `order`.
                #[allow(dead_code, non_snake_case)]
                fn #name() {}

                impl #name {
                    /// The handler itself: call it in a unit test, without an app.
                    #[allow(clippy::unused_async)]
                    #(#attributes)*
                    #visibility async fn call(#inputs) #output #body
                }
            };
        }
    }

    /// What the state of an app has to offer.
    fn bounds(&self) -> TokenStream {
        let lifetime = lifetime();
        let (asked, _) = self.extraction();
        let extractors = self.signature.extractors.iter().map(|ty| {
            let ty = with_lifetime(ty, &lifetime);
            quote_spanned! { ty.span() =>
                for<#lifetime> ::ruststream::handler::Parameters: ::ruststream::handler::#asked<#lifetime, __State, #ty>,
            }
        });
        quote! {
            __State: ::core::marker::Send + ::core::marker::Sync + 'static,
            #(#extractors)*
        }
    }

    fn definition(&self) -> TokenStream {
        let handler = &self.name;
        let name = &self.settings.name;
        let description = &self.attributes.description;
        let mut definition = quote! { ::ruststream::handler::Definition::new(#handler, #name) };
        if let Some(destination) = self
            .settings
            .reply
            .as_ref()
            .and_then(|reply| reply.destination.as_ref())
        {
            definition.extend(quote! { .with_reply(#destination) });
        }
        if !description.is_empty() {
            definition.extend(quote! { .with_description(#description) });
        }
        if self.signature.message.is_batch() {
            definition.extend(quote! { .with_batch() });
        }
        definition
    }

    /// `Single::call`. The message is read last: kept over the awaits of the extractors, it would be stored twice in the future,
    /// once here and once in that of the function.
    fn single(&self) -> TokenStream {
        let lifetime = lifetime();
        let decode = |ty: &Type| {
            let decoded = quote_spanned! { ty.span() =>
                <#ty as ::ruststream::handler::Message<#lifetime>>::read(__call.incoming(), __call.codec())
            };
            quote! {
                let __message = match #decoded {
                    ::core::result::Result::Ok(__message) => __message,
                    ::core::result::Result::Err(__error) => {
                        return <::ruststream::handler::Outcome as ::core::convert::From<_>>::from(__error);
                    }
                };
            }
        };
        let (read, message) = match &self.signature.message {
            Message::Owned(ty) => (decode(&with_lifetime(ty, &lifetime)), quote!(__message)),
            Message::Lent(ty) => (decode(&with_lifetime(ty, &lifetime)), quote!(&__message)),
            Message::Text(ty) => (
                decode(&syn::parse_quote_spanned! { ty.span() => ::std::string::String }),
                quote!(&__message),
            ),
            _ => (
                quote! { let __message = __call.incoming().payload(); },
                quote!(__message),
            ),
        };
        let extract = self.extract(|failure| failure);
        let called = self.called(&message);
        let outcome = outcome(self.signature.output, self.settings.reply.as_ref(), &called);
        self.future(
            &quote! { __call: ::ruststream::handler::Call<#lifetime, __State> },
            &quote! { ::ruststream::handler::Outcome },
            &quote! { #extract #read #outcome },
        )
    }

    /// `Batched::call`.
    fn batched(&self) -> TokenStream {
        let lifetime = lifetime();
        let read = if let Message::Batch(ty) = &self.signature.message {
            let ty = with_lifetime(ty, &lifetime);
            let read = quote_spanned! { ty.span() =>
                <#ty as ::ruststream::handler::Message<#lifetime>>::read(__call.incoming(), __call.codec())
            };
            quote! { |__call| #read.map_err(::ruststream::handler::Outcome::from) }
        } else {
            quote! { |__call| ::core::result::Result::Ok(__call.incoming().payload()) }
        };
        let extract = self.extract(|failure| {
            quote! { ::ruststream::handler::BatchOutcome::All(#failure) }
        });
        let called = self.called(&quote!(__batch.messages()));
        let outcome = batch_outcome(self.signature.output, &called);
        self.future(
            &quote! { __calls: &#lifetime [::ruststream::handler::Call<#lifetime, __State>] },
            &quote! { ::ruststream::handler::BatchOutcome },
            &quote! {
                #extract
                let __batch = match ::ruststream::handler::Batch::read(__calls, #read) {
                    ::core::result::Result::Ok(__batch) => __batch,
                    ::core::result::Result::Err(__outcome) => return __outcome,
                };
                let __outcome = #outcome;
                __batch.outcome(__outcome)
            },
        )
    }

    /// The method that makes the future of a call. A future that is not `Send` is reported at the handler's name.
    fn future(&self, calls: &TokenStream, output: &TokenStream, body: &TokenStream) -> TokenStream {
        quote_spanned! { self.function.sig.ident.span() =>
            #[allow(clippy::manual_async_fn)]
            fn call<'call>(
                &'call self,
                #calls,
            ) -> impl ::core::future::Future<Output = #output> + ::core::marker::Send + 'call {
                async move { #body }
            }
        }
    }

    /// The trait that draws the parameters after the message, and its call.
    fn extraction(&self) -> (TokenStream, TokenStream) {
        if self.signature.message.is_batch() {
            (quote!(BatchParameter), quote!(extract_batch(__calls)))
        } else {
            (quote!(Parameter), quote!(extract(__call)))
        }
    }

    /// Draws the parameters after the message; a failure ends the call as `refused` says.
    fn extract(&self, refused: impl Fn(TokenStream) -> TokenStream) -> TokenStream {
        let lifetime = lifetime();
        let (extraction, drawn) = self.extraction();
        let refusal = refused(quote! { ::ruststream::handler::IntoFailure::into_failure(__rejection) });
        self.signature
            .extractors
            .iter()
            .zip(self.names())
            .map(|(ty, name)| {
                let ty = with_lifetime(ty, &lifetime);
                let extracted = quote_spanned! { ty.span() =>
                    <::ruststream::handler::Parameters as ::ruststream::handler::#extraction<#lifetime, __State, #ty>>::#drawn
                };
                quote! {
                    let #name = match #extracted.await {
                        ::core::result::Result::Ok(__value) => __value,
                        ::core::result::Result::Err(__rejection) => return #refusal,
                    };
                }
            })
            .collect()
    }

    /// The call of the function itself.
    fn called(&self, message: &TokenStream) -> TokenStream {
        let name = &self.function.sig.ident;
        let names = self.names();
        quote! { <#name>::call(#message, #(#names),*).await }
    }

    fn names(&self) -> impl Iterator<Item = Ident> {
        (1..=self.signature.extractors.len()).map(|index| format_ident!("__parameter_{index}"))
    }
}

/// The lifetime of one call.
fn lifetime() -> Lifetime {
    Lifetime::new("'call", Span::call_site())
}
