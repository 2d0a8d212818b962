//! `#[skep::test]`: a function whose arguments come from a fixture becomes a test without arguments.
//!
//! Only the function's head is read, so its body may be anything that compiles.

use proc_macro2::{Group, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, LitStr, ReturnType, Token, Type, Visibility};

/// `object = "..."`.
pub(crate) struct Options {
    object: LitStr,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let expected = "expected object = \"FILE\", relative to the package";
        let name: Ident = input.parse().map_err(|error| syn::Error::new(error.span(), expected))?;
        if name != "object" {
            return Err(syn::Error::new(name.span(), expected));
        }
        input.parse::<Token![=]>()?;
        let object = input.parse()?;
        if !input.is_empty() {
            return Err(input.error("expected nothing behind the object"));
        }
        Ok(Self { object })
    }
}

/// The head of a function, and its body as it is.
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    arguments: Punctuated<Argument, Token![,]>,
    output: ReturnType,
    body: Group,
}

struct Argument {
    mutable: Option<Token![mut]>,
    name: Ident,
    ty: Type,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mutable, name) = (input.parse()?, input.parse()?);
        input.parse::<Token![:]>()?;
        Ok(Self { mutable, name, ty: input.parse()? })
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        input.parse::<Token![fn]>()?;
        let name = input.parse()?;
        let arguments;
        syn::parenthesized!(arguments in input);
        Ok(Self {
            attributes,
            visibility,
            name,
            arguments: Punctuated::parse_terminated(&arguments)?,
            output: input.parse()?,
            body: input.parse()?,
        })
    }
}

/// The test.
pub(crate) fn expand(options: &Options, function: &Function) -> TokenStream {
    let Function { attributes, visibility, name, arguments, output, body } = function;
    let Options { object } = options;
    let typed = arguments.iter().map(|Argument { mutable, name, ty }| quote!(#mutable #name: #ty));
    let types = arguments.iter().map(|argument| &argument.ty);
    quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        #visibility fn #name() #output {
            fn run(#(#typed),*) #output #body
            let fixture = ::skep::fixture::Fixture::load(concat!(env!("CARGO_MANIFEST_DIR"), "/", #object));
            let fixture = fixture.unwrap_or_else(|error| panic!("{error}"));
            run(#(<#types as ::skep::fixture::FromFixture>::from_fixture(&fixture)),*)
        }
    }
}
