//! `#[derive(Context)]`.
//!
//! Each field becomes a line in each of four functions, in one order: describe, lend, lend shared, take back. The type
//! as it is written decides how a field is lent: references and options to what a pointer leads to, and all other types
//! by themselves.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{
    Data, DeriveInput, Error, Fields, GenericArgument, GenericParam, Ident, LitStr, PathArguments, Result,
    Type,
};

/// What the attributes of the structure say.
#[derive(Default)]
struct Outer {
    section: Option<String>,
    verdict: Option<Type>,
    name: Option<String>,
}

/// What the attributes of a field say.
#[derive(Default)]
struct Inner {
    write: bool,
    host: bool,
    skip: bool,
    name: Option<String>,
}

/// How a field is lent.
enum Shape<'a> {
    /// By itself.
    Value,
    /// `&T`.
    Shared(&'a Type),
    /// `&mut T`.
    Mutable(&'a Type),
    /// `Option<&T>`.
    OptionShared(&'a Type),
    /// `Option<&mut T>`.
    OptionMutable(&'a Type),
    /// `Option<T>`.
    Option(&'a Type),
}

/// The lines of a field in the four functions.
struct Lines {
    describe: TokenStream,
    lend: TokenStream,
    lend_shared: TokenStream,
    take_back: TokenStream,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a context is a structure"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "a context's fields have names"));
    };
    if let Some(other) =
        input.generics.params.iter().find(|param| !matches!(param, GenericParam::Lifetime(_)))
    {
        return Err(Error::new_spanned(other, "a context has no parameters but lifetimes"));
    }
    let outer = Outer::parse(input)?;
    let (mut lines, mut bound, mut host) = (Vec::new(), Vec::new(), None);
    for field in &fields.named {
        let attributes = Inner::parse(field)?;
        let Some(ident) = &field.ident else { continue };
        if attributes.host {
            if outer.section.is_none() {
                let text =
                    "only a context has a part for functions: a structure with #[context(section = \"...\")]";
                return Err(Error::new_spanned(ident, text));
            }
            if host.replace((ident, &field.ty)).is_some() {
                return Err(Error::new_spanned(
                    ident,
                    "one field is for functions; put several into a structure",
                ));
            }
        } else if !attributes.skip {
            bound.push(ident);
            lines.push(field_lines(ident, &field.ty, &attributes)?);
        }
    }
    let name = outer.name.clone().unwrap_or_else(|| crate::snake_case(&input.ident.to_string()));
    let structure = implement(input, &name, &bound, &lines);
    let context = match &outer.section {
        Some(section) => implement_context(input, &outer, section, (&bound, &lines), host),
        None if outer.verdict.is_some() => {
            return Err(Error::new_spanned(&input.ident, "only a context with a section has verdicts"));
        }
        None => TokenStream::new(),
    };
    Ok(quote!(#structure #context))
}

fn implement(input: &DeriveInput, name: &str, bound: &[&Ident], lines: &[Lines]) -> TokenStream {
    let (ident, (generics, arguments, condition)) = (&input.ident, input.generics.split_for_impl());
    let describe = lines.iter().map(|lines| &lines.describe);
    let lend = lines.iter().map(|lines| &lines.lend);
    let lend_shared = lines.iter().map(|lines| &lines.lend_shared);
    let take_back = lines.iter().map(|lines| &lines.take_back);
    quote! {
        #[automatically_derived]
        impl #generics ::skep::host::HostStruct for #ident #arguments #condition {
            const NAME: &'static str = #name;
            fn describe(empty: ::skep::host::StructType) -> ::skep::host::StructType {
                empty #(#describe)*
            }
            fn lend<'skep>(&'skep mut self, to: &mut ::skep::host::Lending<'skep>) {
                let Self { #(#bound,)* .. } = self;
                #(#lend)*
            }
            fn lend_shared<'skep>(&'skep self, to: &mut ::skep::host::Lending<'skep>) {
                let Self { #(#bound,)* .. } = self;
                #(#lend_shared)*
            }
            fn take_back(&mut self, from: &mut ::skep::host::TakingBack<'_>) {
                let Self { #(#bound,)* .. } = self;
                #(#take_back)*
            }
        }
    }
}

fn implement_context(
    input: &DeriveInput,
    outer: &Outer,
    section: &str,
    (bound, lines): (&[&Ident], &[Lines]),
    host: Option<(&Ident, &Type)>,
) -> TokenStream {
    let (ident, (generics, arguments, condition)) = (&input.ident, input.generics.split_for_impl());
    let verdict = outer.verdict.as_ref().map_or_else(|| quote!(i32), ToTokens::to_token_stream);
    let statics = input.generics.params.iter().map(|_| quote!('static));
    let lend = lines.iter().map(|lines| &lines.lend);
    let (of_host, bind, result) = match host {
        Some((field, ty)) => (ty.to_token_stream(), quote!(#field: skep_host,), quote!(skep_host)),
        None => (quote!(()), TokenStream::new(), quote!(::skep::host::nothing())),
    };
    quote! {
        #[automatically_derived]
        impl #generics ::skep::host::HostContext for #ident #arguments #condition {
            const SECTION: &'static str = #section;
            type Kind = #ident<#(#statics),*>;
            type Verdict = #verdict;
            type Host = #of_host;
            fn lend_with_host<'skep>(
                &'skep mut self,
                to: &mut ::skep::host::Lending<'skep>,
            ) -> &'skep mut Self::Host {
                let Self { #(#bound,)* #bind .. } = self;
                #(#lend)*
                #result
            }
        }
    }
}

fn field_lines(ident: &Ident, ty: &Type, attributes: &Inner) -> Result<Lines> {
    let name =
        attributes.name.clone().unwrap_or_else(|| ident.to_string().trim_start_matches("r#").to_owned());
    let check = |describe: TokenStream| quote!(.field(#name, #describe));
    if let Shape::Value = shape(ty)? {
        let mut described = quote!(<#ty as ::skep::host::Field>::describe());
        if attributes.write {
            described = quote!({
                ::skep::host::assert_writable::<#ty>();
                #described.writable()
            });
        }
        return Ok(Lines {
            describe: check(described),
            lend: quote!(::skep::host::Field::lend(#ident, to);),
            lend_shared: quote!(::skep::host::Field::lend_shared(#ident, to);),
            take_back: quote!(::skep::host::Field::take_back(#ident, from);),
        });
    }
    if attributes.write {
        let text = "the reference says whether programs may write what it leads to: `&mut`, or `&`";
        return Err(Error::new_spanned(ty, text));
    }
    let pointee = quote!(::skep::host::Pointee);
    let (to, writable, nullable, mutable, shared) = match shape(ty)? {
        Shape::Value => return Err(Error::new_spanned(ty, "a value")),
        Shape::Shared(to) => (to, false, false, quote!(), quote!(::core::option::Option::Some(&**#ident))),
        Shape::Mutable(to) => (
            to,
            true,
            false,
            quote!(::core::option::Option::Some(&mut **#ident)),
            quote!(::core::option::Option::Some(&**#ident)),
        ),
        Shape::OptionShared(to) => (to, false, true, quote!(), quote!(#ident.as_deref())),
        Shape::OptionMutable(to) => {
            (to, true, true, quote!(#ident.as_deref_mut()), quote!(#ident.as_deref()))
        }
        Shape::Option(to) => (to, true, true, quote!(#ident.as_mut()), quote!(#ident.as_ref())),
    };
    let lend_shared = quote!(#pointee::lend_shared(#shared, to););
    let (lend, take_back) = if writable {
        (quote!(#pointee::lend(#mutable, to);), quote!(#pointee::take_back(#mutable, from);))
    } else {
        let none = format_ident!("None");
        (
            lend_shared.clone(),
            quote! {
                let _ = &*#ident;
                <#to as #pointee>::take_back(::core::option::Option::#none, from);
            },
        )
    };
    let describe = check(quote!(<#to as #pointee>::describe(#writable, #nullable)));
    Ok(Lines { describe, lend, lend_shared, take_back })
}

/// How a type is written.
fn shape(ty: &Type) -> Result<Shape<'_>> {
    Ok(match ty {
        Type::Reference(reference) => match (&*reference.elem, reference.mutability) {
            (Type::Slice(_), _) => Shape::Value,
            (Type::Path(path), _) if path.path.is_ident("str") => Shape::Value,
            (to, Some(_)) => Shape::Mutable(to),
            (to, None) => Shape::Shared(to),
        },
        Type::Path(path) => {
            let Some(last) = path.path.segments.last().filter(|last| last.ident == "Option") else {
                return Ok(Shape::Value);
            };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Ok(Shape::Value) };
            let Some(GenericArgument::Type(inner)) = arguments.args.first() else { return Ok(Shape::Value) };
            match inner {
                Type::Reference(_) => match shape(inner)? {
                    Shape::Shared(to) => Shape::OptionShared(to),
                    Shape::Mutable(to) => Shape::OptionMutable(to),
                    _ => {
                        return Err(Error::new_spanned(
                            ty,
                            "bytes that are not there are an empty slice: leave out Option",
                        ));
                    }
                },
                to => Shape::Option(to),
            }
        }
        _ => Shape::Value,
    })
}

impl Outer {
    fn parse(input: &DeriveInput) -> Result<Self> {
        let mut outer = Self::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("context")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("section") {
                    outer.section = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if meta.path.is_ident("name") {
                    outer.name = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if meta.path.is_ident("verdict") {
                    outer.verdict = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("expected section, name or verdict"));
                }
                Ok(())
            })?;
        }
        Ok(outer)
    }
}

impl Inner {
    fn parse(field: &syn::Field) -> Result<Self> {
        let mut inner = Self::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("context")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("write") {
                    inner.write = true;
                } else if meta.path.is_ident("host") {
                    inner.host = true;
                } else if meta.path.is_ident("skip") {
                    inner.skip = true;
                } else if meta.path.is_ident("name") {
                    inner.name = Some(meta.value()?.parse::<LitStr>()?.value());
                } else {
                    return Err(meta.error("expected write, host, skip or name"));
                }
                Ok(())
            })?;
        }
        Ok(inner)
    }
}
