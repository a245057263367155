//! What can be told of a type from how it is written.

use syn::visit_mut::{self, VisitMut};
use syn::{GenericArgument, Lifetime, PathArguments, PathSegment, Type, TypeReference};

/// The type itself, without the groups that `macro_rules` and parentheses put around it.
pub(crate) fn bare(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            _ => return ty,
        };
    }
}

/// The last segment of a path: `Result<(), E>` of `std::result::Result<(), E>`.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match bare(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// The types among the generic arguments.
pub(crate) fn type_arguments(segment: &PathSegment) -> impl Iterator<Item = &Type> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// True for `()`.
pub(crate) fn is_unit(ty: &Type) -> bool {
    matches!(bare(ty), Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// True for `name`, whatever stands before it.
pub(crate) fn is_named(ty: &Type, name: &str) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == name)
}

/// True for `[u8]`.
pub(crate) fn is_bytes(ty: &Type) -> bool {
    matches!(bare(ty), Type::Slice(slice) if is_named(&slice.elem, "u8"))
}

/// True where `impl Trait` stands somewhere in the type, which therefore can be written in signatures alone.
pub(crate) fn has_impl_trait(ty: &Type) -> bool {
    struct Finder(bool);

    impl VisitMut for Finder {
        fn visit_type_impl_trait_mut(&mut self, _: &mut syn::TypeImplTrait) {
            self.0 = true;
        }
    }

    let mut finder = Finder(false);
    finder.visit_type_mut(&mut ty.clone());
    finder.0
}

/// The type with `lifetime` in the place of each elided one.
pub(crate) fn with_lifetime(ty: &Type, lifetime: &Lifetime) -> Type {
    struct Writer<'a>(&'a Lifetime);

    impl Writer<'_> {
        fn at(&self, place: &Lifetime) -> Lifetime {
            Lifetime {
                apostrophe: place.apostrophe,
                ident: syn::Ident::new(&self.0.ident.to_string(), place.ident.span()),
            }
        }
    }

    impl VisitMut for Writer<'_> {
        fn visit_lifetime_mut(&mut self, place: &mut Lifetime) {
            if place.ident == "_" {
                *place = self.at(place);
            }
        }

        fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
            if reference.lifetime.is_none() {
                let span = reference.and_token.span;
                reference.lifetime = Some(self.at(&Lifetime::new("'_", span)));
            }
            visit_mut::visit_type_reference_mut(self, reference);
        }

        // What is elided in the types of functions has a meaning of its own.
        fn visit_type_bare_fn_mut(&mut self, _: &mut syn::TypeBareFn) {}

        fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut syn::ParenthesizedGenericArguments) {}
    }

    let mut written = ty.clone();
    Writer(lifetime).visit_type_mut(&mut written);
    written
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;
    use quote::{ToTokens, quote};
    use syn::parse_quote;

    use super::*;

    fn written(ty: &Type) -> String {
        with_lifetime(ty, &Lifetime::new("'call", Span::call_site()))
            .into_token_stream()
            .to_string()
    }

    #[test]
    fn elided_lifetimes_are_written_out() {
        assert_eq!(
            written(&parse_quote!(Event<'_, &str>)),
            quote!(Event<'call, &'call str>).to_string()
        );
        assert_eq!(
            written(&parse_quote!(&'static [&u8])),
            quote!(&'static [&'call u8]).to_string()
        );
    }

    #[test]
    fn the_types_of_functions_are_left_alone() {
        let ty: Type = parse_quote!(Hook<fn(&str) -> &str, dyn Fn(&u8) -> &u8>);
        assert_eq!(written(&ty), ty.to_token_stream().to_string());
    }

    #[test]
    fn a_result_is_known_by_its_last_segment() {
        let ty: Type = parse_quote!(std::result::Result<Receipt, Error>);
        let segment = last_segment(&ty).expect("a path");

        assert_eq!(segment.ident, "Result");
        assert!(type_arguments(segment).next().is_some_and(|ty| is_named(ty, "Receipt")));
    }

    #[test]
    fn impl_trait_is_found_at_any_depth() {
        assert!(has_impl_trait(&parse_quote!(Result<Vec<impl Serialize>, Error>)));
        assert!(!has_impl_trait(&parse_quote!(Result<Vec<Receipt>, Error>)));
    }
}
