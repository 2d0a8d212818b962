//! Declarations of a host's functions in C, for the authors of programs.
//!
//! The text says all that the prototypes say, so a file that is compiled from it gives them back
//! ([`Prototypes`](super::Prototypes)). What C has no word for is a tag: clang keeps tags with the types, and other
//! compilers do not see them.

use super::errno::Errno;
use skep_abi::{Access, ArgKind, HelperProto, RetKind};
use std::fmt::Write;

const TAGS: &str = "\
/* Programs pass memory of the size that is declared, or whose size in bytes is the next argument. */
#ifdef __clang__
#define host_tag(text) __attribute__((btf_type_tag(text)))
#else
#define host_tag(text)
#endif
#define host_bytes(size) host_tag(\"bytes:\" #size)
#define host_out host_tag(\"out\") /* it is filled, and need not be initialised */
#define host_or_null host_tag(\"or_null\")
#define host_map host_tag(\"map\")
#define host_context host_tag(\"context\")
";

/// A header with these functions.
pub(crate) fn header<'a>(functions: impl Iterator<Item = &'a HelperProto>) -> String {
    let mut text =
        format!("/* Functions that this host provides to BPF programs. */\n#pragma once\n\n{TAGS}");
    for proto in functions {
        text.push('\n');
        if let Some(types) = &proto.only_for {
            let _ = writeln!(text, "/* For programs of type {}. */", types.join(", "));
        }
        if let Some(error) = errors(proto.ret) {
            let _ = writeln!(text, "/* {error} */");
        }
        match declared(proto) {
            Some(declared) => text.push_str(&declared),
            None => {
                let _ = writeln!(text, "/* {} ({}) cannot be declared in C. */", proto.name, proto.id);
            }
        }
    }
    text
}

/// The declaration, if C has words for all of it.
fn declared(proto: &HelperProto) -> Option<String> {
    let mut args = Vec::new();
    for (at, kind) in proto.args.iter().enumerate().take_while(|(_, kind)| **kind != ArgKind::None) {
        let name = format!("a{}", at + 1);
        args.push(argument(*kind, &name)?);
    }
    let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
    Some(format!("static {} (*const {})({args}) = (void *) {};\n", result(proto.ret)?, proto.name, proto.id))
}

fn argument(kind: ArgKind, name: &str) -> Option<String> {
    let pointer = |access, tags: String| {
        let (qualifier, tag) = match access {
            Access::Read => ("const ", ""),
            Access::Write => ("", " host_out"),
            Access::ReadWrite => ("", ""),
        };
        format!("{qualifier}void{tags}{tag} *{name}")
    };
    Some(match kind {
        ArgKind::Scalar => format!("unsigned long long {name}"),
        ArgKind::Size { zero: true } => format!("unsigned long long {name}_size"),
        ArgKind::FixedMemory { access, bytes } => pointer(access, format!(" host_bytes({bytes})")),
        ArgKind::Memory { access, nullable } => {
            pointer(access, if nullable { " host_or_null".into() } else { String::new() })
        }
        ArgKind::Map => format!("void host_map *{name}"),
        ArgKind::Context => format!("void host_context *{name}"),
        ArgKind::Callback(skep_abi::Callback::Host) => {
            format!("int (*{name})(unsigned long long value, void *context)")
        }
        ArgKind::CallbackContext => format!("void *{name}_context"),
        _ => return None,
    })
}

/// The type of results of that range.
fn result(kind: RetKind) -> Option<&'static str> {
    Some(match kind {
        RetKind::Void => "void",
        RetKind::Scalar => "unsigned long long",
        RetKind::Range { min, max } => {
            // Error numbers are at least an int, as everywhere in C.
            let narrow = errors(kind).is_none();
            let fits = |least: i64, most: i64| least <= min && max <= most;
            match () {
                () if fits(0, 1) => "_Bool",
                () if fits(0, u8::MAX.into()) => "unsigned char",
                () if fits(0, u16::MAX.into()) => "unsigned short",
                () if fits(0, u32::MAX.into()) => "unsigned int",
                () if narrow && fits(i8::MIN.into(), i8::MAX.into()) => "signed char",
                () if narrow && fits(i16::MIN.into(), i16::MAX.into()) => "short",
                () if fits(i32::MIN.into(), i32::MAX.into()) => "int",
                () => "long long",
            }
        }
        _ => return None,
    })
}

/// What to say of results that may be errors.
fn errors(kind: RetKind) -> Option<String> {
    match kind {
        RetKind::Range { min, max } if min == -i64::from(Errno::MAX) => {
            Some(format!("Returns a number up to {max}, or a negated error number."))
        }
        _ => None,
    }
}
