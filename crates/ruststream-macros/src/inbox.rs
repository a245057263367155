//! `#[derive(Inbox)]`: which column of a table is for what, and how a row is read and written.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Ident, LitStr};

/// What stands in an attribute, the variant of the role, and whether a table must have one.
const ROLES: [(&str, &str, bool); 13] = [
    ("id", "Id", true),
    ("attempt", "Attempt", true),
    ("run_at", "RunAt", true),
    ("lease", "Lease", true),
    ("token", "Token", true),
    ("group", "Group", false),
    ("payload", "Payload", false),
    ("headers", "Headers", false),
    ("key", "Key", false),
    ("priority", "Priority", false),
    ("processed_at", "ProcessedAt", false),
    ("dead_at", "DeadAt", false),
    ("dead_reason", "DeadReason", false),
];

struct Column<'a> {
    field: &'a Field,
    ident: &'a Ident,
    name: LitStr,
    role: Option<(&'static str, &'static str)>,
    generated: bool,
}

struct Table {
    name: LitStr,
    schema: Option<LitStr>,
    /// Columns that have a role and no field.
    beside: Vec<(LitStr, &'static str, &'static str)>,
}

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    implementation(input).unwrap_or_else(|error| error.to_compile_error())
}

fn implementation(input: &DeriveInput) -> syn::Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a row of a table is a struct without parameters: its columns have types that can be owned",
        ));
    }
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => {
                return Err(Error::new(
                    input.ident.span(),
                    "a row is a struct with a named field for each column",
                ));
            }
        },
        _ => {
            return Err(Error::new(
                input.ident.span(),
                "a row is a struct with a named field for each column",
            ));
        }
    };
    let table = table(input)?;
    let columns = fields.iter().map(column).collect::<syn::Result<Vec<_>>>()?;
    check_roles(input, &table, &columns)?;
    Ok(implement(input, &table, &columns))
}

fn table(input: &DeriveInput) -> syn::Result<Table> {
    let (mut name, mut schema) = (None, None);
    let mut beside = Vec::new();
    for attribute in inbox(&input.attrs) {
        attribute.parse_nested_meta(|meta| {
            let place = if meta.path.is_ident("table") {
                &mut name
            } else if meta.path.is_ident("schema") {
                &mut schema
            } else if let Some((role, variant, _)) = ROLES.into_iter().find(|(role, ..)| meta.path.is_ident(role)) {
                beside.push((text(&meta)?, role, variant));
                return Ok(());
            } else {
                return Err(meta.error(
                    "of a table is said `table = \"jobs\"`, `schema = \"shop\"`, and what columns without a field are for, as in \
                     `lease = \"held_until\"`",
                ));
            };
            *place = Some(text(&meta)?);
            Ok(())
        })?;
    }
    let Some(name) = name else {
        return Err(Error::new(
            input.ident.span(),
            "name the table: `#[inbox(table = \"jobs\")]`, with `schema = \"shop\"` where it is in one",
        ));
    };
    Ok(Table { name, schema, beside })
}

fn column(field: &Field) -> syn::Result<Column<'_>> {
    let Some(ident) = &field.ident else {
        return Err(Error::new(
            field.span(),
            "a row is a struct with a named field for each column",
        ));
    };
    let mut column = Column {
        field,
        ident,
        name: LitStr::new(ident.to_string().trim_start_matches("r#"), ident.span()),
        role: None,
        generated: false,
    };
    for attribute in inbox(&field.attrs) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("generated") {
                column.generated = true;
                return Ok(());
            }
            if meta.path.is_ident("column") {
                column.name = text(&meta)?;
                return Ok(());
            }
            let Some((name, variant, _)) = ROLES.into_iter().find(|(name, ..)| meta.path.is_ident(name)) else {
                let known: Vec<_> = ROLES.iter().map(|(name, ..)| *name).collect();
                return Err(meta.error(format!(
                    "a column has no such role; known: {}, and `generated`, `column = \"name\"`",
                    known.join(", ")
                )));
            };
            if let Some((other, _)) = column.role {
                return Err(meta.error(format!("this column is the `{other}` already; a column has one role")));
            }
            column.role = Some((name, variant));
            Ok(())
        })?;
    }
    Ok(column)
}

fn check_roles(input: &DeriveInput, table: &Table, columns: &[Column<'_>]) -> syn::Result<()> {
    for (name, _, needed) in ROLES {
        let fields = columns
            .iter()
            .filter(|column| column.role.is_some_and(|(role, _)| role == name))
            .map(|column| column.ident.span());
        let beside = table.beside.iter().filter(|(_, role, _)| *role == name);
        let mut its = fields.chain(beside.map(|(column, ..)| column.span()));
        match (its.next(), its.next()) {
            (_, Some(second)) => {
                return Err(Error::new(
                    second,
                    format!("two columns are the `{name}`; keep one of them"),
                ));
            }
            (None, _) if needed => {
                return Err(Error::new(
                    input.ident.span(),
                    format!(
                        "say which column is the `{name}`: `#[inbox({name})]` on its field, or `#[inbox({name} = \"column\")]` on the \
                         struct"
                    ),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn implement(input: &DeriveInput, table: &Table, columns: &[Column<'_>]) -> TokenStream {
    let name = &input.ident;
    let Table {
        name: table,
        schema,
        beside,
    } = table;
    let schema = schema.as_ref().map_or_else(
        || quote!(::core::option::Option::None),
        |schema| quote!(::core::option::Option::Some(#schema)),
    );
    let described = columns.iter().map(
        |Column {
             name, role, generated, ..
         }| {
            let role = Ident::new(role.map_or("Plain", |(_, variant)| variant), name.span());
            quote! {
                ::ruststream_sqlx::derived::ColumnSpec {
                    name: #name,
                    role: ::ruststream_sqlx::derived::Role::#role,
                    generated: #generated,
                }
            }
        },
    );
    let beside = beside.iter().map(|(name, _, variant)| {
        let role = Ident::new(variant, name.span());
        quote! {
            ::ruststream_sqlx::derived::ColumnSpec {
                name: #name,
                role: ::ruststream_sqlx::derived::Role::#role,
                generated: true,
            }
        }
    });
    let described = described.chain(beside);
    let stored: Vec<_> = columns.iter().filter(|column| !column.generated).collect();
    let (stored_idents, stored_types): (Vec<_>, Vec<_>) =
        stored.iter().map(|column| (column.ident, &column.field.ty)).unzip();
    let idents = columns.iter().map(|column| column.ident);
    let names = columns.iter().map(|column| &column.name);
    let types = columns.iter().map(|column| &column.field.ty);
    quote! {
        #[automatically_derived]
        impl ::ruststream_sqlx::InboxTable for #name {
            const TABLE: ::ruststream_sqlx::derived::TableSpec = ::ruststream_sqlx::derived::TableSpec {
                schema: #schema,
                table: #table,
                columns: &[#(#described),*],
            };
        }

        #[automatically_derived]
        impl<__DB: ::ruststream_sqlx::derived::sqlx::Database> ::ruststream_sqlx::ReadRow<__DB> for #name
        where
            for<'__c> &'__c str: ::ruststream_sqlx::derived::sqlx::ColumnIndex<__DB::Row>,
            #(#types: for<'__r> ::ruststream_sqlx::derived::sqlx::Decode<'__r, __DB>
                + ::ruststream_sqlx::derived::sqlx::Type<__DB>,)*
        {
            fn read(__row: &__DB::Row) -> ::core::result::Result<Self, ::ruststream_sqlx::derived::sqlx::Error> {
                ::core::result::Result::Ok(Self {
                    #(#idents: ::ruststream_sqlx::derived::sqlx::Row::try_get(__row, #names)?,)*
                })
            }
        }

        #[automatically_derived]
        impl<__DB: ::ruststream_sqlx::derived::sqlx::Database> ::ruststream_sqlx::InsertRow<__DB> for #name
        where
            #(#stored_types: for<'__r> ::ruststream_sqlx::derived::sqlx::Encode<'__r, __DB>
                + ::ruststream_sqlx::derived::sqlx::Type<__DB>,)*
        {
            fn bind(
                &self,
                __arguments: &mut __DB::Arguments,
            ) -> ::core::result::Result<(), ::ruststream_sqlx::derived::sqlx::error::BoxDynError> {
                #(::ruststream_sqlx::derived::sqlx::Arguments::add(__arguments, &self.#stored_idents)?;)*
                ::core::result::Result::Ok(())
            }
        }

        #[automatically_derived]
        impl<'__a> ::ruststream::handler::Message<'__a> for #name {
            fn read(
                __incoming: ::ruststream::message::Incoming<'__a>,
                _: &::ruststream::codec::Codec,
            ) -> ::core::result::Result<Self, ::ruststream::codec::CodecError> {
                ::ruststream_sqlx::derived::read_row(__incoming).map_err(::ruststream::codec::CodecError::new)
            }
        }
    }
}

fn inbox(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("inbox"))
}

/// The text after the equals sign.
fn text(meta: &syn::meta::ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    let text: LitStr = meta.value()?.parse()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), "a name has at least one letter"));
    }
    Ok(text)
}
