//! `#[derive(Verdict)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, LitStr, Result};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a verdict is an enum"));
    };
    let mut name = crate::snake_case(&input.ident.to_string());
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("verdict")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("expected name = \"...\""));
            }
            name = meta.value()?.parse::<LitStr>()?.value();
            Ok(())
        })?;
    }
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "a verdict has no parameters"));
    }
    if data.variants.is_empty() {
        return Err(Error::new_spanned(&input.ident, "a verdict has variants"));
    }
    let (mut values, mut arms) = (Vec::new(), Vec::new());
    for variant in &data.variants {
        if !matches!(variant.fields, syn::Fields::Unit) {
            return Err(Error::new_spanned(variant, "a verdict's variants have no fields"));
        }
        let ident = &variant.ident;
        let text = crate::snake_case(&ident.to_string());
        values.push(quote!((#text, Self::#ident as i32)));
        arms.push(
            quote!(if result == Self::#ident as i32 { return ::core::option::Option::Some(Self::#ident); }),
        );
    }
    let ident = &input.ident;
    Ok(quote! {
        impl ::skep::host::Verdict for #ident {
            const NAME: &'static str = #name;
            const VALUES: &'static [(&'static str, i32)] = &[#(#values),*];
            fn from_result(result: i32) -> ::core::option::Option<Self> {
                #(#arms)*
                ::core::option::Option::None
            }
        }
    })
}
