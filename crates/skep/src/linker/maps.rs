//! The maps of a load: which are needed, from which definitions they are made, and their first contents.

use super::Linker;
use crate::contract;
use crate::error::Error;
use crate::module::UnusedMap;
use crate::object::Variable;
use crate::socket::make_member;
use crate::steps::steps;
use skep_abi::{MapDef, MapFlags, MapKind, OWN_TYPE, SpecialKind};
use skep_btf::ObjectLayouts;
use skep_elf::EntryTarget;
use skep_maps::{Arena, Map, MapError, UpdateFlags};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maps of a load.
pub(super) struct MapsOfLoad {
    /// By their index in the object, without those that are not created.
    pub(super) by_index: Vec<Option<Arc<Map>>>,
    pub(super) unused: Vec<UnusedMap>,
}

impl Linker<'_> {
    /// The definitions of the maps that this load's programs use: of given maps their own, of others those from which
    /// they are created.
    pub(super) fn definitions(&self, variables: &[Variable]) -> Result<Arc<[MapDef]>, Error> {
        let object = self.object.maps_for_runtime();
        let sized_by_cpus = |def: &MapDef| def.max_entries == 0 && def.kind.counts_cpus();
        let given = [self.variables.is_empty(), self.given.is_empty(), self.max_entries.is_empty()];
        if given == [true; 3] && !object.iter().any(sized_by_cpus) {
            return Ok(Arc::clone(object));
        }
        let mut maps = object.to_vec();
        for def in &mut maps {
            if let Some(given) = self.given.get(&def.name) {
                *def = contract::stands_for(def, given, self.runtime.cpus())?;
            }
            if sized_by_cpus(def) {
                // As libbpf does: an element for each CPU.
                def.max_entries = self.runtime.cpus();
            }
            if let Some(entries) = self.max_entries.get(&def.name) {
                def.max_entries = *entries;
            }
        }
        for variable in variables {
            let set = self.variables.get(&variable.name);
            if let (Some(value), Some(frozen)) =
                (set, maps.get_mut(variable.map).and_then(|def| def.frozen.as_mut()))
            {
                let range = variable.offset..variable.offset + variable.size;
                Arc::make_mut(frozen)[range].copy_from_slice(value);
            }
        }
        Ok(maps.into())
    }

    /// The maps that this load needs: those that programs reach, those that it was given something for, and those that
    /// are put into needed maps.
    fn needed(&self, definitions: &[MapDef], variables: &[Variable], reached: BTreeSet<usize>) -> Vec<bool> {
        let set = variables.iter().filter(|variable| self.variables.contains_key(&variable.name));
        let set: BTreeSet<usize> = set.map(|variable| variable.map).collect();
        let named =
            |def: &MapDef| self.given.contains_key(&def.name) || self.max_entries.contains_key(&def.name);
        let mut needed: Vec<bool> = definitions.iter().map(named).collect();
        reached.iter().chain(&set).for_each(|map| needed[*map] = true);
        for (map, entry) in self.entries() {
            if let EntryTarget::Map(inner) = entry.target {
                needed[inner as usize] |= needed[map];
            }
        }
        needed
    }

    /// Creates the maps that are needed, and others as far as that succeeds.
    pub(super) fn create_maps(
        &self,
        definitions: &[MapDef],
        variables: &[Variable],
        reached: BTreeSet<usize>,
    ) -> Result<MapsOfLoad, Error> {
        let needed = self.needed(definitions, variables, reached);
        let options =
            skep_maps::Options { cpus: self.runtime.cpus(), limit: self.runtime.shared().map_memory };
        let memory = self.memory();
        let shared = self.runtime.shared();
        let keeper = (&shared.dispatch.objects, &shared.domain);
        let mut layouts = self.object.types().map(|types| ObjectLayouts::new(types));
        let mut maps = Vec::with_capacity(definitions.len());
        let mut unused = Vec::new();
        for (index, def) in definitions.iter().enumerate() {
            if let Some(given) = self.given.get(&def.name) {
                let shared = self.runtime.shared();
                let wired = given.references().is_none() || shared.dispatch.has_joined(given);
                if !wired || !given.fits(&shared.domain) {
                    return Err(Error::OtherRuntime { map: def.name.clone() });
                }
                contract::keep_objects(def, given, keeper, &self.layouts(def, &mut layouts)?)?;
                given.let_programs_store(make_member);
                self.prepare_storage(given)?;
                maps.push(Some(Arc::clone(given)));
                continue;
            }
            if !needed[index] && self.only.is_some() {
                unused.push(UnusedMap { name: def.name.clone(), error: None });
                maps.push(None);
                continue;
            }
            let create = if shared.shares_maps { Map::create_shared_in } else { Map::create_in };
            let created = shared.charging(|| create(&memory, def, &options).map_err(Error::of_map));
            let map = match created {
                Err(Error::Map(error)) if !needed[index] && may_be_missing(&error) => {
                    unused.push(UnusedMap { name: def.name.clone(), error: Some(error) });
                    maps.push(None);
                    continue;
                }
                map => map?,
            };
            if def.frozen.is_none() {
                self.set_first(&map, index, variables)?;
            }
            let map = Arc::new(map);
            let shared = self.runtime.shared();
            contract::keep_objects(def, &map, keeper, &self.layouts(def, &mut layouts)?)?;
            shared.dispatch.wire(&map);
            map.let_programs_store(make_member);
            self.prepare_storage(&map)?;
            maps.push(Some(map));
        }
        Ok(MapsOfLoad { by_index: maps, unused })
    }

    /// Values of sockets, tasks and cgroups end with them. A storage of control groups has an element from the start,
    /// since `bpf_get_local_storage` never fails.
    fn prepare_storage(&self, map: &Arc<Map>) -> Result<(), Error> {
        match map.kind() {
            MapKind::SkStorage | MapKind::TaskStorage | MapKind::CgrpStorage => {
                self.runtime.shared().surroundings.add_storage(map)
            }
            MapKind::CgroupStorage | MapKind::PercpuCgroupStorage => map.begin_storage()?,
            _ => {}
        }
        Ok(())
    }

    /// What the objects in a map's values look like.
    fn layouts(&self, def: &MapDef, known: &mut Option<ObjectLayouts<'_>>) -> Result<Arc<str>, Error> {
        let mut text = String::new();
        let inner = def.inner.iter().flat_map(|inner| &inner.fields);
        for field in def.fields.iter().chain(inner) {
            let own = match field.kind {
                SpecialKind::ListHead { holds, .. } | SpecialKind::RbRoot { holds, .. } => Some(holds),
                SpecialKind::Kptr { to } | SpecialKind::KptrPercpu { to } => {
                    (to & OWN_TYPE != 0).then_some(to & !OWN_TYPE)
                }
                _ => None,
            };
            if let (Some(ty), Some(known)) = (own, known.as_mut()) {
                text += &known.text(ty).map_err(|source| Error::Object(source.into()))?;
            }
        }
        Ok(text.into())
    }

    /// Gives a map of variables its first contents, with the variables that this load sets.
    fn set_first(&self, map: &Map, index: usize, variables: &[Variable]) -> Result<(), Error> {
        // They are in the order of the maps.
        let first = variables.partition_point(|variable| variable.map < index);
        let here = variables[first..].iter().take_while(|variable| variable.map == index);
        let here: Vec<_> = here.inspect(|_| steps(1)).collect();
        let declared = self.object.elf().map(|elf| &elf.maps()[index]);
        let mut initial = declared.and_then(|map| map.initial.as_deref()).map(<[u8]>::to_vec);
        let bytes = declared.map_or(0, |map| map.variable_bytes as usize);
        for variable in &here {
            if let Some(value) = self.variables.get(&variable.name) {
                // Sections of zeroes have no contents in the file.
                let bytes = initial.get_or_insert_with(|| vec![0; bytes]);
                bytes[variable.offset..variable.offset + variable.size].copy_from_slice(value);
            }
        }
        if let Some(arena) = map.arena() {
            // Pages of zeroes are there too: programs store to variables without allocating.
            if bytes > 0 {
                arena.allocate(Some(arena.start()), bytes.div_ceil(Arena::PAGE as usize) as u32)?;
            }
            if let Some(bytes) = &initial {
                arena.write(arena.start(), bytes)?;
            }
            return Ok(());
        }
        if let Some(bytes) = &initial {
            map.update(&0u32.to_ne_bytes(), bytes, UpdateFlags::Any)?;
        }
        let holds_variables = initial.is_some() || !here.is_empty();
        if holds_variables && map.def().flags.contains(MapFlags::RDONLY_PROG) {
            map.freeze()?; // constants, as Linux's loaders do
        }
        Ok(())
    }
}

/// Whether a map that nobody needs may be left out because of this error: its definition is sound, but skep does not
/// provide it, or its loader has to choose a capacity.
fn may_be_missing(error: &MapError) -> bool {
    matches!(
        error,
        MapError::KindNotProvided { .. }
            | MapError::CreateFlags { .. }
            | MapError::NoEntries { .. }
            | MapError::TooLarge { .. }
    )
}
