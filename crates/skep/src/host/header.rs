//! The C header for authors of programs of a host's type.

use super::btf::{NULLABLE, enumerator, verdict_tag};
use super::describe::{FieldType, StructType};
use super::layout::HostType;
use skep_abi::{Access, ArgKind, HelperProto, RetKind};
use skep_isa::Size;
use std::fmt::Write;

impl HostType {
    /// The C header for authors of programs. Members are accessed through CO-RE, so a compiled program runs in later
    /// versions of the host as long as these have the fields that it uses. The header carries all that
    /// [`HostType::from_btf`] reads.
    ///
    /// Functions that programs of this type can call are declared only in
    /// [`Runtime::context_header`](crate::Runtime::context_header), since they belong to a runtime.
    pub fn header(&self) -> String {
        self.header_with(&[])
    }

    pub(crate) fn header_with(&self, functions: &[&HelperProto]) -> String {
        let root = self.description().name();
        let guard = format!("SKEP_{}_H", root.to_uppercase());
        let mut text = format!(
            "/* The context of programs in SEC(\"{}\"). Written by skep from the host's description: do not edit. */\n\
             #ifndef {guard}\n#define {guard}\n\n#ifndef __VMLINUX_H__\n#include <linux/types.h>\n#endif\n\n",
            self.section()
        );
        let verdict = self.verdict();
        if !verdict.values.is_empty() {
            let _ = writeln!(text, "enum {} {{", verdict.name);
            for (name, value) in &verdict.values {
                let _ = writeln!(text, "\t{} = {value},", enumerator(verdict, name));
            }
            text += "};\n\n";
        }
        text += "#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)\n\n";
        let mut known = Vec::new();
        structure(&mut text, self.description(), &mut known, &self.tags());
        text += "#pragma clang attribute pop\n\n";
        // Compilers drop it. Tools that read the header through a compiler's types make it global.
        let _ = writeln!(text, "static struct {root} *const skep_{root} __attribute__((unused)) = 0;\n");
        for function in functions {
            let _ = writeln!(text, "{}", prototype(function, root));
        }
        if !functions.is_empty() {
            text += "\n";
        }
        let _ = writeln!(text, "#endif /* {guard} */");
        text
    }

    /// What C cannot say of the context: attributes.
    fn tags(&self) -> String {
        let tag = |text: String| format!(" __attribute__((btf_decl_tag(\"{text}\")))");
        let mut tags = tag(format!("skep:context={}", self.section()));
        let verdict = self.verdict();
        if !verdict.values.is_empty() {
            tags += &tag(verdict_tag(verdict));
        }
        tags
    }
}

/// A structure, after those that it leads to. `tags` are those of the outermost.
fn structure(text: &mut String, of: &StructType, known: &mut Vec<String>, tags: &str) {
    if known.contains(&of.name) {
        return;
    }
    known.push(of.name.clone());
    for (_, kind) in of.fields() {
        if let FieldType::Struct { of, .. } = kind {
            structure(text, of, known, "");
        }
    }
    let _ = writeln!(text, "struct {} {{", of.name);
    for (name, kind) in of.fields() {
        let _ = match kind {
            FieldType::Number { size, signed, writable } => {
                writeln!(text, "\t{}{} {name};", constant(*writable), int(*size, *signed))
            }
            FieldType::Numbers { size, signed, count, writable } => {
                writeln!(text, "\t{}{} {name}[{count}];", constant(*writable), int(*size, *signed))
            }
            FieldType::Slice { writable } => {
                let constant = constant(*writable);
                writeln!(text, "\t{constant}__u8 *{name};\n\t{constant}__u8 *{name}_end;")
            }
            FieldType::Bytes { bytes, writable, nullable } => {
                writeln!(text, "\t{}__u8 (*{name})[{bytes}]{};", constant(*writable), tag(*nullable))
            }
            FieldType::Struct { of, writable, nullable } => {
                writeln!(text, "\t{}struct {} *{name}{};", constant(*writable), of.name, tag(*nullable))
            }
        };
    }
    let _ = writeln!(text, "}}{tags};\n");
}

fn constant(writable: bool) -> &'static str {
    if writable { "" } else { "const " }
}

fn tag(nullable: bool) -> String {
    if nullable { format!(" __attribute__((btf_decl_tag(\"{NULLABLE}\")))") } else { String::new() }
}

fn int(size: Size, signed: bool) -> &'static str {
    match (size, signed) {
        (Size::B1, false) => "__u8",
        (Size::B2, false) => "__u16",
        (Size::B4, false) => "__u32",
        (Size::B8, false) => "__u64",
        (Size::B1, true) => "__s8",
        (Size::B2, true) => "__s16",
        (Size::B4, true) => "__s32",
        (Size::B8, true) => "__s64",
    }
}

/// A function's declaration. `context` is the structure that its first argument points to.
fn prototype(function: &HelperProto, context: &str) -> String {
    let result = match function.ret {
        RetKind::Void => "void",
        RetKind::Range { min, max } if min >= i32::MIN.into() && max <= i32::MAX.into() => "int",
        RetKind::Range { min: 0, .. } => "__u64",
        _ => "__s64",
    };
    let memory = |access| if access == Access::Read { "const void *" } else { "void *" };
    let mut arguments = Vec::new();
    for (at, argument) in function.args.iter().enumerate() {
        arguments.push(match argument {
            ArgKind::None => continue,
            ArgKind::Context | ArgKind::HostContext => format!("struct {context} *ctx"),
            ArgKind::Memory { access, .. } => format!("{}bytes{at}", memory(*access)),
            ArgKind::FixedMemory { access, .. } => format!("{}value{at}", memory(*access)),
            ArgKind::Size { .. } => format!("__u64 bytes{}_len", at.saturating_sub(1)),
            ArgKind::Map => format!("void *map{at}"),
            _ => format!("__u64 number{at}"),
        });
    }
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    format!("extern {result} {}({arguments}) __attribute__((section(\".ksyms\")));", function.name)
}
