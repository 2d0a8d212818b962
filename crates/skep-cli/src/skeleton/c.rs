//! The header in C, over skep's C library.

use super::types::{Ty, Types};
use super::{Skeleton, View};
use std::fmt::Write;

pub(super) fn print(skeleton: &Skeleton<'_>) -> String {
    let mut out = String::new();
    // Writing to a string does not fail, here and below.
    let _ = text(skeleton, &mut out);
    out
}

fn text(skeleton: &Skeleton<'_>, out: &mut String) -> std::fmt::Result {
    let Skeleton { name, file, types, programs, maps, variables } = skeleton;
    let guard = format!("{}_SKEL_H", name.to_uppercase());
    writeln!(out, "/* Made by `skep gen skeleton --c {file}`: do not edit. Needs skep's C library. */")?;
    writeln!(out, "#ifndef {guard}\n#define {guard}\n")?;
    writeln!(out, "#include <skep.h>\n#include <stdint.h>\n")?;
    for one in &types.structs {
        let packed = if one.packed { " __attribute__((packed))" } else { "" };
        writeln!(out, "/* struct {}: {} bytes */", one.name, one.size)?;
        writeln!(out, "struct {name}_{} {{", one.name)?;
        for member in &one.members {
            writeln!(out, "\t{};", declared(&member.ty, &word(&member.name), name, types))?;
        }
        writeln!(out, "}}{packed};\n")?;
        writeln!(
            out,
            "typedef char {name}_{}_size[sizeof(struct {name}_{}) == {} ? 1 : -1];\n",
            one.name, one.name, one.size
        )?;
    }
    for (of, values, signed, _) in &types.enums {
        writeln!(out, "/* enum {of}: any number is possible, since programs write it. */")?;
        for (value_name, value) in values {
            match signed {
                true => writeln!(out, "#define {name}_{value_name} ({})", value.cast_signed())?,
                false => writeln!(out, "#define {name}_{value_name} {value}ULL")?,
            }
        }
        writeln!(out)?;
    }
    for map in maps {
        let types_of = match &map.view {
            View::Keyed(key, value) | View::PerCpu(key, value) => vec![("key", key), ("value", value)],
            View::Queue(value) => vec![("value", value)],
            View::Plain => Vec::new(),
        };
        for (what, ty) in types_of {
            writeln!(out, "typedef {};", declared(ty, &format!("{name}_{}_{what}", map.name), name, types))?;
        }
    }
    writeln!(out, "\n/* A loaded object: the pointers are valid until {name}_free. */")?;
    writeln!(out, "struct {name} {{\n\tskep_module *module;")?;
    if !maps.is_empty() {
        writeln!(out, "\tstruct {{")?;
        maps.iter().try_for_each(|map| writeln!(out, "\t\tconst skep_map *{};", word(&map.name)))?;
        writeln!(out, "\t}} maps;")?;
    }
    if !programs.is_empty() {
        writeln!(out, "\tstruct {{")?;
        programs
            .iter()
            .try_for_each(|program| writeln!(out, "\t\tconst skep_program *{};", word(program)))?;
        writeln!(out, "\t}} programs;")?;
    }
    writeln!(out, "}};\n")?;
    writeln!(out, "/* Frees it; the programs must not be running. */")?;
    writeln!(out, "static inline void {name}_free(struct {name} *skeleton)\n{{")?;
    writeln!(out, "\tskep_module_free(skeleton->module);\n\tskeleton->module = NULL;\n}}\n")?;
    writeln!(
        out,
        "/* Loads all programs of an object; options may be NULL. Returns 0 or a negative status. */"
    )?;
    writeln!(
        out,
        "static inline int {name}_load(struct {name} *skeleton, skep_runtime *runtime, const skep_object *object,\n\
         \t\t\t      const skep_load_options *options)\n{{"
    )?;
    writeln!(out, "\tint status = skep_module_load(runtime, object, options, &skeleton->module);\n")?;
    writeln!(out, "\tif (status != SKEP_OK)\n\t\treturn status;")?;
    let lookups =
        maps.iter().map(|map| ("map", &map.name)).chain(programs.iter().map(|one| ("program", one)));
    for (what, one) in lookups {
        let place = format!("skeleton->{what}s.{}", word(one));
        writeln!(out, "\tstatus = skep_module_{what}(skeleton->module, \"{one}\", &{place});")?;
        writeln!(out, "\tif (status != SKEP_OK)\n\t\tgoto failed;")?;
    }
    writeln!(out, "\treturn SKEP_OK;")?;
    if !maps.is_empty() || !programs.is_empty() {
        writeln!(out, "failed:\n\t{name}_free(skeleton);\n\treturn status;")?;
    }
    writeln!(out, "}}")?;
    for variable in variables {
        let one = &variable.name;
        let ty = declared(&variable.ty, &format!("{name}_{one}_value"), name, types);
        writeln!(out, "\n/* The variable {one}. */\ntypedef {ty};\n")?;
        writeln!(
            out,
            "static inline int {name}_get_{one}(const struct {name} *skeleton, {name}_{one}_value *value)\n{{\n\
             \treturn skep_module_variable(skeleton->module, \"{one}\", value, sizeof(*value));\n}}"
        )?;
        if !variable.read_only {
            writeln!(
                out,
                "\nstatic inline int {name}_set_{one}(const struct {name} *skeleton, const {name}_{one}_value *value)\n{{\n\
                 \treturn skep_module_set_variable(skeleton->module, \"{one}\", value, sizeof(*value));\n}}"
            )?;
        }
    }
    writeln!(out, "\n#endif")
}

/// A declaration of something of that type.
fn declared(ty: &Ty, what: &str, name: &str, types: &Types<'_>) -> String {
    match ty {
        Ty::Int { bytes, signed: true } => format!("int{}_t {what}", bytes * 8),
        Ty::Int { bytes, signed: false } => format!("uint{}_t {what}", bytes * 8),
        Ty::Float { bytes: 4 } => format!("float {what}"),
        Ty::Float { .. } => format!("double {what}"),
        Ty::Array(element, count) => declared(element, &format!("{what}[{count}]"), name, types),
        Ty::Struct(index) => format!("struct {name}_{} {what}", types.structs[*index].name),
    }
}

/// A name that is no keyword of C or C++.
fn word(name: &str) -> String {
    const WORDS: [&str; 24] = [
        "class",
        "new",
        "delete",
        "this",
        "template",
        "namespace",
        "private",
        "public",
        "protected",
        "operator",
        "virtual",
        "friend",
        "using",
        "export",
        "try",
        "catch",
        "throw",
        "typename",
        "explicit",
        "mutable",
        "and",
        "or",
        "not",
        "xor",
    ];
    let name = super::identifier(name);
    if WORDS.contains(&&*name) { format!("{name}_") } else { name }
}
