//! State of an old module in a new one whose structures have changed.
//!
//! **Problem.** A new version of a program has other structures in its maps: members were added, moved, widened,
//! removed. The elements that the old version has left are worth keeping.
//!
//! **Rule.** Members are found by their names, in the types of both objects (BTF). A new member is zero. A number
//! keeps its value, or the migration fails: where it does not fit, nothing is cut off. What the new structure lacks is
//! left out, and the [`Migration`] says so.
//!
//! Elements that programs change while they are copied may be copied as they were before. So let no program of the old
//! module run, or migrate again.

mod value;

use crate::error::Error;
use crate::module::Module;
use skep_btf::Btf;
use skep_maps::{Map, UpdateFlags};
use std::collections::BTreeSet;
use value::{Plan, Side};

/// What a migration has done: [`Module::migrate_from`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// The maps whose elements were copied, and how many each.
    pub copied: Vec<(String, usize)>,
    /// The variables that got the old value.
    pub variables: Vec<String>,
    /// What was left out: members that the new structures lack (`flows.value.ttl`), maps and variables of the old
    /// module that the new one lacks.
    pub dropped: Vec<String>,
    /// Members of new structures that the old ones lack, which are zero.
    pub added: Vec<String>,
}

impl Module {
    /// Copies the state of an older module: the elements of maps that this module made anew
    /// ([`Linker::fresh_map`](crate::Linker::fresh_map)), and the variables that programs may write. Maps that both
    /// modules share stay as they are.
    ///
    /// Copied are arrays, hash tables and tries, per CPU or not, and variables. Queues, stacks, ring buffers, bloom
    /// filters and maps of programs, maps or sockets are not, and are told among the [dropped](Migration::dropped) if
    /// the new one is another map.
    ///
    /// # Errors
    ///
    /// [`Error::Migration`], with the place and the remedy: a number that does not fit, a member that has become
    /// something else, a key whose members were removed. [`Error::Map`]: a map that is full. What was copied before
    /// stays copied.
    pub fn migrate_from(&self, old: &Self) -> Result<Migration, Error> {
        let mut report = Report::default();
        for from in &old.maps {
            let name = from.name();
            if old.is_section(from) {
                continue;
            }
            let Some(to) = self.map(name) else {
                report.dropped.insert(format!("map {name}"));
                continue;
            };
            if std::sync::Arc::ptr_eq(from, to) {
                continue;
            }
            if !has_elements(from) || !has_elements(to) {
                report.dropped.insert(format!("elements of map {name}"));
                continue;
            }
            let count = self.copy_map(old, from, to, &mut report)?;
            report.copied.push((name.to_owned(), count));
        }
        self.copy_variables(old, &mut report)?;
        let Report { copied, variables, dropped, added } = report;
        Ok(Migration {
            copied,
            variables,
            dropped: dropped.into_iter().collect(),
            added: added.into_iter().collect(),
        })
    }

    fn copy_map(&self, old: &Self, from: &Map, to: &Map, report: &mut Report) -> Result<usize, Error> {
        let name = from.name();
        let (old_key, old_value) = old.map_types(name)?;
        let (new_key, new_value) = self.map_types(name)?;
        let (was, is) = (from.def(), to.def());
        let key = Plan {
            from: Side::new(old.types(), old_key, was.key_size),
            to: Side::new(self.types(), new_key, is.key_size),
        };
        let value = Plan {
            from: Side::new(old.types(), old_value, was.value_size),
            to: Side::new(self.types(), new_value, is.value_size),
        };
        if was.kind.is_per_cpu() != is.kind.is_per_cpu() {
            return Err(Error::Migration {
                place: format!("map {name}"),
                why: format!(
                    "the old one is a {}, the new one a {}: one has a value for each CPU",
                    was.kind, is.kind
                ),
            });
        }
        let padded = |size: u32| (size as usize).next_multiple_of(8);
        let mut count = 0;
        for (old_key, old_value) in from.entries() {
            if was.kind.is_array() && old_value.iter().all(|byte| *byte == 0) {
                continue;
            }
            let dropped = report.dropped.len();
            let new_key = key.convert(&old_key, &format!("{name}.key"), report)?;
            if report.dropped.len() > dropped {
                let why = "the new key lacks a member, so two elements may have the same key; copy the elements yourself";
                return Err(Error::Migration { place: format!("{name}.key"), why: why.to_owned() });
            }
            let place = format!("{name}.value");
            let new_value = if was.kind.is_per_cpu() {
                // CPUs that the new map lacks had no programs of this runtime.
                let mut all = vec![0; to.host_value_size()];
                let slots = all.chunks_exact_mut(padded(is.value_size));
                for (bytes, slot) in old_value.chunks_exact(padded(was.value_size)).zip(slots) {
                    let converted = value.convert(&bytes[..was.value_size as usize], &place, report)?;
                    slot[..converted.len()].copy_from_slice(&converted);
                }
                all
            } else {
                value.convert(&old_value, &place, report)?
            };
            to.update(&new_key, &new_value, UpdateFlags::Any)?;
            count += 1;
        }
        Ok(count)
    }

    fn copy_variables(&self, old: &Self, report: &mut Report) -> Result<(), Error> {
        let written = old.variables.iter().filter(|variable| !variable.read_only);
        for from in written {
            let name = &from.name;
            let Some(to) =
                self.variables.iter().find(|variable| variable.name == *name && !variable.read_only)
            else {
                report.dropped.insert(format!("variable {name}"));
                continue;
            };
            let ty = |btf: Option<&Btf>| btf.and_then(|btf| btf.variable(name));
            let plan = Plan {
                from: Side::new(old.types(), ty(old.types()), from.size as u32),
                to: Side::new(self.types(), ty(self.types()), to.size as u32),
            };
            let bytes = plan.convert(&old.variable(name)?, name, report)?;
            self.set_variable(name, &bytes)?;
            report.variables.push(name.clone());
        }
        Ok(())
    }
}

/// What a migration collects.
#[derive(Default)]
struct Report {
    copied: Vec<(String, usize)>,
    variables: Vec<String>,
    dropped: BTreeSet<String>,
    added: BTreeSet<String>,
}

/// Whether a map has keys and values of bytes.
fn has_elements(map: &Map) -> bool {
    use skep_abi::MapKind as K;
    matches!(
        map.kind(),
        K::Array | K::PercpuArray | K::Hash | K::PercpuHash | K::LruHash | K::LruPercpuHash | K::LpmTrie
    )
}
