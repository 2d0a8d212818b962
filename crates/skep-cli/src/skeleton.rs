//! `skep gen skeleton`: an object's programs, maps and variables as a module in Rust or a header in C.
//!
//! [`types`] turns the object's types into plain structures, the same for both languages; [`rust`] and [`c`] print
//! them.

mod c;
mod rust;
mod types;

use crate::failure::Failure;
use skep::Object;
use skep::abi::{MapDef, MapKind};
use std::collections::HashSet;
use std::path::PathBuf;
use types::{Ty, Types};

/// Print a module with an object's maps and variables as types of Rust or C.
///
/// The Rust module needs the crates `skep` and `zerocopy`; the C header needs skep's C library, and has what that
/// library can do: load, find maps and programs, set and read variables.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The object file
    object: PathBuf,
    /// Print a Rust module
    #[arg(long, required_unless_present = "c", conflicts_with = "c")]
    rust: bool,
    /// Print a C header
    #[arg(long)]
    c: bool,
    /// Name of the module, and prefix of names in C [default: the file's name]
    #[arg(long)]
    name: Option<String>,
}

/// What both languages print.
struct Skeleton<'a> {
    name: String,
    file: String,
    types: Types<'a>,
    programs: Vec<String>,
    maps: Vec<MapOf>,
    variables: Vec<VariableOf>,
}

/// A map that the host uses.
struct MapOf {
    name: String,
    view: View,
}

/// How the host sees a map.
enum View {
    Keyed(Ty, Ty),
    PerCpu(Ty, Ty),
    Queue(Ty),
    /// No view: programs, maps, sockets, records.
    Plain,
}

struct VariableOf {
    name: String,
    ty: Ty,
    read_only: bool,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let object = Object::open(&args.object)?;
    let file = args.object.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = file.trim_end_matches(".o").trim_end_matches(".bpf");
    let name = identifier(args.name.as_deref().unwrap_or(stem));
    let skeleton = Skeleton::of(&object, name, file)?;
    let text = if args.c { c::print(&skeleton) } else { rust::print(&skeleton) };
    crate::output::text(&text)
}

impl<'a> Skeleton<'a> {
    fn of(object: &'a Object, name: String, file: String) -> Result<Self, Failure> {
        let mut types = Types::new(object.types().map(|types| &**types));
        let variables = object.variables();
        let mut maps = Vec::new();
        for (index, def) in object.maps().iter().enumerate() {
            if variables.iter().any(|variable| variable.map == index)
                || def.frozen.is_some()
                || def.name.starts_with('.')
            {
                continue;
            }
            maps.push(MapOf { name: def.name.clone(), view: view(&mut types, def)? });
        }
        let mut named = Vec::new();
        // A name may be that of several static variables, which the library does not tell apart either.
        let mut seen = HashSet::new();
        let usable = variables.iter().filter(|one| one.size > 0 && is_identifier(&one.name));
        for variable in usable.filter(|one| seen.insert(one.name.clone())) {
            let ty = types.variable(&variable.name, variable.size)?;
            named.push(VariableOf { name: variable.name.clone(), ty, read_only: variable.read_only });
        }
        let programs = object.programs().iter().map(|name| (*name).to_owned()).collect();
        Ok(Self { name, file, types, programs, maps, variables: named })
    }
}

fn view(types: &mut Types<'_>, def: &MapDef) -> Result<View, Failure> {
    use MapKind as K;
    let key = |types: &mut Types<'_>| match def.kind.is_array() {
        // `int` is usual in C, and an index is not negative.
        true => Ok(Ty::Int { bytes: 4, signed: false }),
        false => types.of(def.key_btf, def.key_size),
    };
    Ok(match def.kind {
        K::Queue | K::Stack => View::Queue(types.of(def.value_btf, def.value_size)?),
        K::Array | K::Hash | K::LruHash | K::LpmTrie => {
            View::Keyed(key(types)?, types.of(def.value_btf, def.value_size)?)
        }
        K::PercpuArray | K::PercpuHash | K::LruPercpuHash => {
            View::PerCpu(key(types)?, types.of(def.value_btf, def.value_size)?)
        }
        _ => View::Plain,
    })
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A name that both languages take.
fn identifier(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if is_identifier(&name) { name } else { format!("_{name}") }
}
