//! Compares the maps that a program runs with against the definitions that it was verified with.
//!
//! A proof relies on a map's definition ([`Verified::assumptions`]), so the definition must be true of every map that
//! the program can reach, for as long as it runs. Maps reach programs in a few ways, and each is checked here:
//!
//! ```text
//!   way                                           check
//!   an object's own map, Linker::max_entries      definitions(): the verifier gets the definition from which the map is created
//!   Linker::map                                   stands_for(): the same shape; the verifier gets the real map's definition
//!   MapArray::set, MapHash::set, `.values`        fits(): the new inner map fits the outer map's template
//!   the objects in a map's values                 keep_objects(): the programs of all loads agree on their layouts
//!   Program::load                                 check(): every assumption of the program, against the real maps
//! ```
//!
//! The third check suffices because of an invariant: *the template of the real outer map is the contract*. Every
//! program that uses the outer map is verified with that template, and every map is compared with it before it is
//! inserted, in either order. The verifier does not assume what may differ between maps that fit one template: the
//! capacity, except that of plain arrays without `BPF_F_INNER_MAP`.
//!
//! The definition of a map never changes, and creation makes its [frozen](MapDef::frozen) contents true. So a
//! comparison of definitions holds for ever. Programs in arrays of programs are compared where the arrays are wired
//! (`dispatch`).

use crate::error::Error;
use skep_abi::{MapDef, MapFlags, MapKind, SpecialField, SpecialKind};
use skep_maps::Map;
use skep_maps::objects::{NotKept, Objects};
use skep_rcu::Domain;
use skep_verifier::{Assumed, Verified};
use std::sync::Arc;

/// A respect in which two maps differ, and what to do about it.
#[derive(Clone, Copy)]
struct Difference {
    field: &'static str,
    remedy: &'static str,
}

const DECLARE_ALIKE: &str = "declare both alike";
const CAPACITY: Difference = Difference {
    field: "max_entries",
    remedy: "give it the template's max_entries, or both the flag BPF_F_INNER_MAP (0x1000), with which programs are \
             verified for any capacity",
};

/// Checks every assumption of a program against the maps that it will run with.
pub(crate) fn check(program: &Verified, maps: &[Option<Arc<Map>>]) -> Result<(), Error> {
    for assumption in program.assumptions() {
        let index = assumption.map as usize;
        let (Some(Some(map)), Some(told)) = (maps.get(index), program.maps().get(index)) else { continue };
        let real = if assumption.inner { map.def().inner.as_deref() } else { Some(map.def()) };
        let holds = |real: &MapDef| match assumption.what {
            Assumed::Kind(kind) => (real.kind == kind, "kind"),
            Assumed::KeySize(bytes) => (real.key_size == bytes, "key_size"),
            Assumed::ValueSize(bytes) => (real.value_size == bytes, "value_size"),
            Assumed::Flags(flags) => (real.flags == flags, "map_flags"),
            Assumed::Fields(wanted) => (same_fields(wanted, real), "special fields"),
            Assumed::AtMost(most) => {
                let known = !assumption.inner || has_fixed_capacity(real);
                (known && real.max_entries <= most, "max_entries")
            }
            Assumed::AtLeast(least) => (!assumption.inner && real.max_entries >= least, "max_entries"),
            Assumed::Contents(bytes) => {
                let same = |held: &Arc<[u8]>| Arc::ptr_eq(held, bytes) || held == bytes;
                (constants(map).as_ref().is_some_and(same), "frozen contents")
            }
            Assumed::HoldsMaps => (real.inner.is_some(), "inner map"),
            // Checked when the program is connected: `dispatch` compares it with all others of the array.
            Assumed::Programs(..) => (map.references().is_some(), "programs"),
        };
        let field = match real.map(holds) {
            Some((true, _)) => continue,
            Some((false, field)) => field,
            None => "inner map",
        };
        let difference = Difference { field, remedy: "verify the program with the map as it is" };
        return Err(mismatch(told, difference, (0, map.def(), 0)));
    }
    Ok(())
}

/// The contents of a map that nobody can change any more: its only element.
fn constants(map: &Map) -> Option<Arc<[u8]>> {
    let def = map.def();
    // Frozen, the host writes nothing; with the flag, programs do not either.
    let constant = map.is_frozen()
        && def.flags.contains(MapFlags::RDONLY_PROG)
        && def.kind == MapKind::Array
        && def.max_entries == 1;
    if def.frozen.is_some() || !constant {
        return def.frozen.clone().filter(|_| map.is_frozen());
    }
    map.lookup(&0u32.to_ne_bytes()).ok().flatten().map(Into::into)
}

/// Checks that a map can be put into a map of maps whose template is `wanted`.
pub(crate) fn fits(wanted: &MapDef, given: &Map, runtime_cpus: u32) -> Result<(), Error> {
    compare(wanted, given, runtime_cpus, capacity_of_inner)
}

/// Checks that a map can replace one that an object defines. Returns the definition for the verifier.
pub(crate) fn stands_for(wanted: &MapDef, given: &Map, runtime_cpus: u32) -> Result<MapDef, Error> {
    compare(wanted, given, runtime_cpus, |wanted, given| {
        // A larger one is fine: the verifier knows its real size.
        let smaller = wanted.kind.is_array() && given.max_entries < wanted.max_entries;
        let remedy = "give an array with at least as many elements as the object defines";
        smaller.then_some(Difference { field: "max_entries", remedy })
    })?;
    let real = given.def();
    // Types of fields keep the object's numbers: their names are the same.
    Ok(MapDef { max_entries: real.max_entries, frozen: constants(given), ..wanted.clone() })
}

/// Keeps the objects that programs of a load put into a map. `layouts` are those of its types.
pub(crate) fn keep_objects(
    wanted: &MapDef,
    given: &Map,
    (objects, domain): (&Arc<Objects>, &Domain),
    layouts: &Arc<str>,
) -> Result<(), Error> {
    given.keep_objects(objects, domain, layouts).map_err(|error| match error {
        NotKept::OtherRuntime => Error::OtherRuntime { map: wanted.name.clone() },
        NotKept::OtherLayouts => {
            let remedy = "compile both programs with the same definitions of the structures";
            let difference = Difference { field: "the layout of the objects in it", remedy };
            mismatch(wanted, difference, (0, given.def(), 0))
        }
    })
}

fn compare(
    wanted: &MapDef,
    given: &Map,
    runtime_cpus: u32,
    capacity: impl Fn(&MapDef, &MapDef) -> Option<Difference>,
) -> Result<(), Error> {
    let padded = (wanted.value_size as usize).next_multiple_of(8);
    let cpus = if wanted.kind.is_per_cpu() { given.host_value_size() / padded.max(1) } else { usize::MAX };
    let few_cpus = || {
        let remedy = "make it in a runtime, or with Options, of at least as many CPUs";
        (cpus < runtime_cpus as usize).then_some(Difference { field: "the number of CPUs", remedy })
    };
    let difference = shape(wanted, given.def()).or_else(|| capacity(wanted, given.def())).or_else(few_cpus);
    match difference {
        None => Ok(()),
        Some(difference) => Err(mismatch(wanted, difference, (runtime_cpus as usize, given.def(), cpus))),
    }
}

/// The first respect, other than its capacity, in which a map's shape differs.
fn shape(wanted: &MapDef, real: &MapDef) -> Option<Difference> {
    let alike = |same: bool, field| (!same).then_some(Difference { field, remedy: DECLARE_ALIKE });
    alike(wanted.kind == real.kind, "kind")
        .or_else(|| alike(wanted.key_size == real.key_size, "key_size"))
        .or_else(|| alike(wanted.value_size == real.value_size, "value_size"))
        .or_else(|| alike(wanted.flags == real.flags, "map_flags"))
        // Copies of a value skip the special fields of the map's definition, not those of the program's.
        .or_else(|| alike(same_fields(wanted, real), "special fields"))
        .or_else(|| match (&wanted.inner, &real.inner) {
            (Some(wanted), Some(real)) => shape(wanted, real).or_else(|| capacity_of_inner(wanted, real)),
            (None, None) => None,
            _ => alike(false, "inner map"),
        })
}

/// Whether all maps that fit a template have its capacity, as in Linux.
fn has_fixed_capacity(template: &MapDef) -> bool {
    template.kind == MapKind::Array && !template.flags.contains(MapFlags::INNER_MAP)
}

fn capacity_of_inner(template: &MapDef, real: &MapDef) -> Option<Difference> {
    (has_fixed_capacity(template) && template.max_entries != real.max_entries).then_some(CAPACITY)
}

/// Whether values have the same special fields, with the same types.
fn same_fields(a: &MapDef, b: &MapDef) -> bool {
    a.fields.len() == b.fields.len()
        && (0..a.fields.len()).all(|at| {
            let (one, other) = (&a.fields[at], &b.fields[at]);
            let name = |def: &MapDef| def.field_types.get(at).cloned().flatten();
            let kinds = match (name(a), name(b)) {
                // Type numbers are valid within one object only.
                (Some(a), Some(b)) => a == b && unnumbered(one.kind) == unnumbered(other.kind),
                _ => one.kind == other.kind,
            };
            kinds && (one.offset, one.size) == (other.offset, other.size)
        })
}

/// A field's kind without the number of its type.
fn unnumbered(kind: SpecialKind) -> SpecialKind {
    use SpecialKind as K;
    match kind {
        K::ListHead { node, .. } => K::ListHead { holds: 0, node },
        K::RbRoot { node, .. } => K::RbRoot { holds: 0, node },
        K::KptrUntrusted { .. } => K::KptrUntrusted { to: 0 },
        K::Kptr { .. } => K::Kptr { to: 0 },
        K::KptrPercpu { .. } => K::KptrPercpu { to: 0 },
        K::Uptr { .. } => K::Uptr { to: 0 },
        other => other,
    }
}

#[cold]
fn mismatch(
    wanted: &MapDef,
    Difference { field, remedy }: Difference,
    (wanted_cpus, given, given_cpus): (usize, &MapDef, usize),
) -> Error {
    Error::MapMismatch {
        name: wanted.name.clone(),
        field,
        wanted: describe(wanted, wanted_cpus),
        given: describe(given, given_cpus),
        remedy,
    }
}

/// A map's shape in words.
fn describe(def: &MapDef, cpus: usize) -> String {
    let per_cpu = if def.kind.is_per_cpu() && cpus > 0 { format!(", {cpus} CPUs") } else { String::new() };
    let special: String = def
        .fields
        .iter()
        .enumerate()
        .map(|(at, SpecialField { kind, offset, size })| {
            let to = def.field_types.get(at).cloned().flatten();
            let to = to.map_or(String::new(), |to| format!(" of {to}"));
            format!(", a {}{to} of {size} bytes at {offset}", kind.name())
        })
        .collect();
    let frozen = if def.frozen.is_some() { ", frozen" } else { "" };
    let inner = def.inner.as_deref();
    let inner =
        inner.map_or(String::new(), |inner| format!(", of maps of the shape [{}]", describe(inner, 0)));
    format!(
        "{} with {}-byte keys, {}-byte values{special}, {} entries, flags {:#x}{frozen}{per_cpu}{inner}",
        def.kind, def.key_size, def.value_size, def.max_entries, def.flags.0
    )
}

#[cfg(test)]
mod tests;
