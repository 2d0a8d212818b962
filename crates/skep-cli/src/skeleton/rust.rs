//! The module in Rust.

use super::types::{Field, Struct, Ty, Types};
use super::{Skeleton, View};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Words that cannot name a field, even with `r#` before them, and those that can.
const NEVER: [&str; 4] = ["self", "super", "crate", "Self"];
const KEYWORDS: [&str; 48] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

pub(super) fn print(skeleton: &Skeleton<'_>) -> String {
    let mut out = String::new();
    // Writing to a string does not fail, here and below.
    let _ = text(skeleton, &mut out);
    out
}

fn text(skeleton: &Skeleton<'_>, out: &mut String) -> std::fmt::Result {
    let names = Names::of(&skeleton.types);
    let Skeleton { file, programs, maps, variables, .. } = skeleton;
    writeln!(out, "// Made by `skep gen skeleton --rust {file}`: do not edit.")?;
    writeln!(out)?;
    writeln!(out, "/// Programs, maps and variables of `{file}`.")?;
    writeln!(out, "#[allow(dead_code, clippy::all, missing_docs, unreachable_pub)]")?;
    writeln!(out, "#[rustfmt::skip]")?;
    writeln!(out, "pub mod {} {{", field(&skeleton.name))?;
    writeln!(out, "    use ::zerocopy::{{FromBytes, Immutable, IntoBytes}};")?;
    writeln!(out)?;
    writeln!(out, "    /// The object file.")?;
    writeln!(out, "    pub const OBJECT: &[u8] = include_bytes!({file:?});")?;
    for one in &skeleton.types.structs {
        structure(one, &names, out)?;
    }
    for (name, values, signed, bytes) in &skeleton.types.enums {
        writeln!(out)?;
        writeln!(out, "    /// `enum {name}`: any number is possible, since programs write it.")?;
        writeln!(out, "    pub mod {} {{", field(name))?;
        for (name, value) in values {
            let ty = rust(&Ty::Int { bytes: *bytes, signed: *signed }, &names);
            match signed {
                true => writeln!(out, "        pub const {}: {ty} = {};", field(name), value.cast_signed())?,
                false => writeln!(out, "        pub const {}: {ty} = {value};", field(name))?,
            }
        }
        writeln!(out, "    }}")?;
    }
    writeln!(out)?;
    writeln!(out, "    /// A loaded object.")?;
    writeln!(out, "    #[derive(Clone, Debug)]")?;
    writeln!(out, "    pub struct Skeleton {{")?;
    writeln!(out, "        pub module: ::skep::Module,")?;
    writeln!(out, "        pub maps: Maps,")?;
    writeln!(out, "        pub programs: Programs,")?;
    writeln!(out, "    }}")?;
    writeln!(out)?;
    writeln!(out, "    #[derive(Clone, Debug)]")?;
    writeln!(out, "    pub struct Maps {{")?;
    for map in maps {
        writeln!(out, "        pub {}: {},", field(&map.name), view(&map.view, &names))?;
    }
    writeln!(out, "    }}")?;
    writeln!(out)?;
    writeln!(out, "    #[derive(Clone, Debug)]")?;
    writeln!(out, "    pub struct Programs {{")?;
    for program in programs {
        writeln!(out, "        pub {}: ::skep::Program,", field(program))?;
    }
    writeln!(out, "    }}")?;
    writeln!(out)?;
    writeln!(out, "    /// Parses the object file.")?;
    writeln!(out, "    pub fn object() -> Result<::skep::Object, ::skep::Error> {{")?;
    writeln!(out, "        ::skep::Object::parse(OBJECT)")?;
    writeln!(out, "    }}")?;
    writeln!(out)?;
    writeln!(out, "    impl Skeleton {{")?;
    writeln!(out, "        /// Loads all programs.")?;
    writeln!(out, "        pub fn load(runtime: &::skep::Runtime) -> Result<Self, ::skep::Error> {{")?;
    writeln!(out, "            Self::of(runtime.load(&object()?)?)")?;
    writeln!(out, "        }}")?;
    writeln!(out)?;
    writeln!(
        out,
        "        /// Of a load of this object with all its programs, whose types are compared with these."
    )?;
    writeln!(out, "        pub fn of(module: ::skep::Module) -> Result<Self, ::skep::Error> {{")?;
    for map in maps {
        let (key, value) = match &map.view {
            View::Keyed(key, value) | View::PerCpu(key, value) => (Some(key), Some(value)),
            View::Queue(value) => (None, Some(value)),
            View::Plain => (None, None),
        };
        for (what, ty) in [("key", key), ("value", value)] {
            if let Some(fields) = ty.and_then(|ty| checked(ty, &skeleton.types, &names)) {
                writeln!(out, "            module.check_{what}({:?}, &{fields})?;", map.name)?;
            }
        }
    }
    for variable in variables {
        if let Some(fields) = checked(&variable.ty, &skeleton.types, &names) {
            writeln!(
                out,
                "            if module.variables().iter().any(|known| known.name == {:?}) {{",
                variable.name
            )?;
            writeln!(out, "                module.check_variable({:?}, &{fields})?;", variable.name)?;
            writeln!(out, "            }}")?;
        }
    }
    writeln!(out, "            let missing = |what: &'static str, name: &str| ::skep::Error::Unknown {{")?;
    writeln!(out, "                what, name: name.to_owned(), known: Vec::new(),")?;
    writeln!(out, "            }};")?;
    writeln!(out, "            let maps = Maps {{")?;
    for map in maps {
        let name = &map.name;
        let made = match map.view {
            View::Keyed(..) => format!("module.typed_map({name:?})?"),
            View::PerCpu(..) => format!("module.per_cpu_map({name:?})?"),
            View::Queue(..) => format!("module.queue({name:?})?"),
            View::Plain => {
                format!("module.map({name:?}).cloned().ok_or_else(|| missing(\"map\", {name:?}))?")
            }
        };
        writeln!(out, "                {}: {made},", field(name))?;
    }
    writeln!(out, "            }};")?;
    writeln!(out, "            let programs = Programs {{")?;
    for program in programs {
        let made =
            format!("module.program({program:?}).cloned().ok_or_else(|| missing(\"program\", {program:?}))?");
        writeln!(out, "                {}: {made},", field(program))?;
    }
    writeln!(out, "            }};")?;
    writeln!(out, "            let _ = missing;")?;
    writeln!(out, "            Ok(Self {{ module, maps, programs }})")?;
    writeln!(out, "        }}")?;
    for variable in variables {
        let (name, ty) = (&variable.name, rust(&variable.ty, &names));
        writeln!(out)?;
        writeln!(out, "        /// The variable `{name}`.")?;
        writeln!(out, "        pub fn {}(&self) -> Result<{ty}, ::skep::Error> {{", method(name))?;
        writeln!(out, "            self.module.get({name:?})")?;
        writeln!(out, "        }}")?;
        if !variable.read_only {
            writeln!(out)?;
            writeln!(out, "        /// Sets the variable `{name}`.")?;
            writeln!(out, "        pub fn set_{name}(&self, value: {ty}) -> Result<(), ::skep::Error> {{")?;
            writeln!(out, "            self.module.set({name:?}, value)")?;
            writeln!(out, "        }}")?;
        }
    }
    writeln!(out, "    }}")?;
    writeln!(out)?;
    writeln!(out, "    /// Variables before the load: `before_load::{{name}}(linker, value)`.")?;
    writeln!(out, "    pub mod before_load {{")?;
    writeln!(out, "        #[allow(unused_imports)]")?;
    writeln!(out, "        use super::*;")?;
    for variable in variables {
        let (name, ty) = (&variable.name, rust(&variable.ty, &names));
        writeln!(out)?;
        let linker = "::skep::Linker<'a>";
        writeln!(out, "        pub fn {}<'a>(linker: {linker}, value: {ty}) -> {linker} {{", field(name))?;
        writeln!(out, "            linker.set({name:?}, value)")?;
        writeln!(out, "        }}")?;
    }
    writeln!(out, "    }}")?;
    writeln!(out, "}}")
}

fn structure(one: &Struct, names: &Names, out: &mut String) -> std::fmt::Result {
    writeln!(out)?;
    writeln!(out, "    /// `struct {}`, {} bytes.", one.name, one.size)?;
    writeln!(out, "    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]")?;
    writeln!(out, "    #[repr({})]", if one.packed { "C, packed" } else { "C" })?;
    writeln!(out, "    pub struct {} {{", names.of_struct(&one.name))?;
    for member in &one.members {
        writeln!(out, "        pub {}: {},", field(&member.name), rust(&member.ty, names))?;
    }
    writeln!(out, "    }}")?;
    writeln!(out)?;
    writeln!(out, "    const _: () = assert!(size_of::<{}>() == {});", names.of_struct(&one.name), one.size)
}

/// The comparison of a structure's fields, if it is one.
fn checked(ty: &Ty, types: &Types<'_>, names: &Names) -> Option<String> {
    let Ty::Struct(index) = ty else { return None };
    let one = &types.structs[*index];
    let own = |member: &&Field| member.own && field(&member.name) == member.name;
    let fields: Vec<_> = one.members.iter().filter(own).map(|member| &*member.name).collect();
    let name = names.of_struct(&one.name);
    (!fields.is_empty()).then(|| format!("::skep::fields!({name} {{ {} }})", fields.join(", ")))
}

fn view(view: &View, names: &Names) -> String {
    match view {
        View::Keyed(key, value) => format!("::skep::TypedMap<{}, {}>", rust(key, names), rust(value, names)),
        View::PerCpu(key, value) => {
            format!("::skep::PerCpuMap<{}, {}>", rust(key, names), rust(value, names))
        }
        View::Queue(value) => format!("::skep::TypedQueue<{}>", rust(value, names)),
        View::Plain => "::std::sync::Arc<::skep::Map>".to_owned(),
    }
}

fn rust(ty: &Ty, names: &Names) -> String {
    match ty {
        Ty::Int { bytes, signed: true } => format!("i{}", bytes * 8),
        Ty::Int { bytes, signed: false } => format!("u{}", bytes * 8),
        Ty::Float { bytes } => format!("f{}", bytes * 8),
        Ty::Array(element, count) => format!("[{}; {count}]", rust(element, names)),
        Ty::Struct(index) => names.0[*index].1.clone(),
    }
}

/// The structures' names in the object and in Rust.
struct Names(Vec<(String, String)>);

impl Names {
    fn of(types: &Types<'_>) -> Self {
        let mut taken: BTreeSet<String> =
            ["Skeleton", "Maps", "Programs", "FromBytes", "IntoBytes", "Immutable", "Result", "Ok"]
                .map(str::to_owned)
                .into();
        let one = |found: &Struct| {
            let mut name: String =
                found.name.split('_').filter(|part| !part.is_empty()).map(capital).collect();
            if !super::is_identifier(&name) || NEVER.contains(&&*name) {
                name = format!("Struct{name}");
            }
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            (found.name.clone(), name)
        };
        Self(types.structs.iter().map(one).collect())
    }

    fn of_struct<'n>(&'n self, name: &'n str) -> &'n str {
        self.0.iter().find(|(known, _)| known == name).map_or(name, |(_, rust)| rust)
    }
}

fn capital(part: &str) -> String {
    let mut chars = part.chars();
    chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
}

/// A variable's name beside the skeleton's own functions.
fn method(name: &str) -> String {
    if matches!(name, "load" | "of") { format!("{name}_") } else { field(name) }
}

/// A name as Rust takes it.
fn field(name: &str) -> String {
    match name {
        name if NEVER.contains(&name) => format!("{name}_"),
        name if KEYWORDS.contains(&name) => format!("r#{name}"),
        name => super::identifier(name),
    }
}
