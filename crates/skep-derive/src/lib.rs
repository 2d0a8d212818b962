//! Derives for contexts and verdicts of a host's own program types, and tests with a loaded object:
//! `#[derive(Context)]`, `#[derive(Verdict)]` and `#[skep::test]` of the crate `skep`, feature `derive`.
//!
//! Nothing that the macros write is `unsafe`: what an implementation lends is checked by the runtime. A mistake here
//! can make a run fail, not the process.
#![forbid(unsafe_code)]

mod context;
mod test;
mod verdict;

use proc_macro::TokenStream;

/// Makes a structure the context of a program type, or a structure that a context leads to.
///
/// ```
/// # extern crate skep;
/// use skep::{Context, Verdict};
///
/// #[derive(Context)]
/// #[context(section = "row_filter", verdict = Decision)]
/// struct Row<'a> {
///     age: u32,                        // const __u32 age
///     #[context(write)]
///     rank: u32,                       // __u32 rank
///     name: &'a str,                   // const __u8 *name, *name_end
///     note: &'a mut [u8],              // __u8 *note, *note_end
///     key: &'a [u8; 16],               // const __u8 (*key)[16]
///     owner: Option<&'a Owner>,        // const struct owner *owner, which may be null
///     #[context(host)]
///     warnings: Vec<String>,           // only for the type's own functions
///     #[context(skip)]
///     table: &'static str,             // for nobody
/// }
///
/// #[derive(Context)]
/// struct Owner {
///     id: u64,
/// }
///
/// #[derive(Clone, Copy, Debug, PartialEq, Verdict)]
/// enum Decision {
///     Hide,
///     Show,
/// }
/// # let header = skep::HostType::of::<Row>().unwrap().header();
/// # assert!(header.contains("const struct owner *owner __attribute__"), "{header}");
/// # assert!(header.contains("DECISION_SHOW = 1"), "{header}");
/// ```
///
/// | attribute of the structure | |
/// |---|---|
/// | `section = "..."` | makes it a context: the name in `SEC("...")` |
/// | `verdict = Type` | what programs return; without it `i32` |
/// | `name = "..."` | its name in C; without it the Rust name in snake case |
///
/// | attribute of a field | |
/// |---|---|
/// | `write` | programs may write it: numbers and arrays of them, `Vec<u8>`, `Box<[u8]>` |
/// | `host` | programs do not see it; functions of the type get it: one field, without lifetimes |
/// | `skip` | programs do not see it |
/// | `name = "..."` | its name in C |
///
/// A number that programs may write must take every value, so a `bool` cannot be written:
///
/// ```compile_fail
/// use skep::Context;
/// #[derive(Context)]
/// #[context(section = "row_filter")]
/// struct Row {
///     #[context(write)]
///     visible: bool,
/// }
/// ```
///
/// and neither can text, or bytes that were lent for reading:
///
/// ```compile_fail
/// use skep::Context;
/// #[derive(Context)]
/// #[context(section = "row_filter")]
/// struct Row<'a> {
///     #[context(write)]
///     name: &'a str,
/// }
/// ```
///
/// ```compile_fail
/// use skep::Context;
/// #[derive(Context)]
/// #[context(section = "row_filter")]
/// struct Row<'a> {
///     #[context(write)]
///     name: &'a [u8],
/// }
/// ```
#[proc_macro_derive(Context, attributes(context))]
pub fn context(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    context::derive(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Makes an enum without fields what programs of a type return. The verifier proves that each result is between its
/// least and greatest number.
///
/// `#[verdict(name = "...")]` sets its name in C, which is also the prefix of its enumerators: `Deny` of `http` is
/// `HTTP_DENY`.
///
/// ```compile_fail
/// # extern crate skep;
/// #[derive(skep::Verdict)]
/// enum Decision {
///     Hide,
///     Show(u32),
/// }
/// ```
#[proc_macro_derive(Verdict, attributes(verdict))]
pub fn verdict(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    verdict::derive(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Makes a function a test that gets an object, loaded for it alone.
///
/// ```
/// # extern crate skep;
/// use skep::{Module, Packet};
///
/// #[skep::test(object = "../../examples/firewall.bpf.o")] // relative to the package
/// fn an_empty_packet_is_dropped(module: Module) {
///     let firewall = module.program("firewall").unwrap();
///     let verdict = firewall.run(&mut Packet::new(&[])).unwrap();
///     assert_eq!(firewall.program_type().verdict(verdict), Some("drop"));
/// }
/// ```
///
/// An argument of type `Module`, `World` or `Runtime` is that of the test. The world's clock moves only by
/// `World::step`, and its random numbers follow from a seed. The test fails if the object cannot be loaded, with the
/// refusal as its text. Other attributes, like `#[should_panic]`, and results are those of any test.
///
/// ```compile_fail
/// #[skep::test(path = "firewall.bpf.o")]
/// fn the_option_is_called_object() {}
/// ```
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = syn::parse_macro_input!(options as test::Options);
    let function = syn::parse_macro_input!(item as test::Function);
    test::expand(&options, &function).into()
}

/// `HttpRequest` in snake case.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
