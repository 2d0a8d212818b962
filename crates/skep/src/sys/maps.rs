//! Maps that clients create.

use super::lacking::Lacking;
use super::{SysEngine, errno, sockets};
use crate::arrays::{MapArray, MapHash, ProgramArray};
use crate::contract;
use crate::object::Object;
use crate::runtime::Runtime;
use crate::targets::TargetMap;
use skep_abi::{MapDef, MapFlags, MapKind, SpecialKind};
use skep_btf::Btf;
use skep_maps::{Map, MapError, UpdateFlags};
use skep_sys::{Batch, Errno, MapRequest, Value};
use std::sync::Arc;

/// A map that a client created.
#[derive(Debug)]
pub struct SysMap {
    map: Arc<Map>,
    holds: Holds,
    types: Option<Arc<Btf>>,
    /// As its creator declared it: what it keeps has the numbers of `types`.
    declared: MapDef,
    cpus: u32,
}

/// What its elements lead to.
#[derive(Debug)]
enum Holds {
    Bytes,
    Programs(ProgramArray),
    Maps(MapArray),
    MapsByKey(MapHash),
    Targets(TargetMap),
}

/// `BPF_F_LOCK`.
const LOCK: u64 = 4;

impl SysMap {
    pub(super) fn create(
        runtime: &Runtime,
        (host, lacking): (Option<&Arc<Btf>>, &Lacking),
        request: &MapRequest<'_, SysEngine>,
    ) -> Result<Self, Errno> {
        let Some(kind) = MapKind::from_number(request.kind) else {
            lacking.note("map kind", request.kind.to_string());
            return Err(Errno::EINVAL);
        };
        // Loaders set the number of CPUs; the call takes what it is given.
        if request.max_entries == 0 && kind.counts_cpus() {
            return Err(Errno::EINVAL);
        }
        let MapRequest { key_size, value_size, max_entries, .. } = *request;
        let mut def = MapDef::new(request.name, kind, key_size, value_size, max_entries);
        def.flags = MapFlags(request.flags);
        def.extra = request.extra;
        def.inner = request.inner.map(|inner| Box::new(inner.declared.clone()));
        let mut types = None;
        if let Some((btf, key, value)) = request.types {
            check_sizes(btf, &def, key, value)?;
            (def.key_btf, def.value_btf) = ((key != 0).then_some(key), Some(value));
            def.set_fields(btf, value).map_err(|_| Errno::EINVAL)?;
            types = Some(Arc::clone(btf));
        }
        let declared = def.clone();
        // Loaders give a map of maps no types: what its inner maps hold has the numbers of theirs.
        let of_inner = || request.inner.and_then(|inner| inner.types.clone());
        let meant = types.clone().or_else(of_inner);
        let mut object = Object::from_sources(Vec::new(), [def], meant);
        if let Some(host) = host {
            object.set_host_types(Arc::clone(host));
        }
        let module = runtime.load(&object).map_err(|error| {
            lacking.note_error(&error);
            errno(&error)
        })?;
        let Some(map) = module.maps.first().cloned() else {
            // The loader leaves out maps that no program needs if it cannot create them.
            let why = module.unused.first().and_then(|unused| unused.error.as_ref());
            if let Some(MapError::KindNotProvided { kind, .. }) = why {
                lacking.note("map kind", kind.name().to_owned());
            }
            return Err(why.map_or(Errno::EINVAL, |error| Errno(error.errno())));
        };
        let holds = if let Some(array) = module.arrays.first() {
            Holds::Programs(array.clone())
        } else if let Some(outer) = module.outer.first() {
            Holds::Maps(outer.clone())
        } else if let Some(table) = module.tables.first() {
            Holds::MapsByKey(table.clone())
        } else {
            TargetMap::new(&map).map_or(Holds::Bytes, Holds::Targets)
        };
        Ok(Self { map, holds, types, declared, cpus: runtime.cpus() })
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Its definition, in which what its values keep has the numbers of the types that it was created with.
    pub(super) fn declared(&self) -> MapDef {
        let def = self.map.def().clone();
        MapDef { fields: self.declared.fields.clone(), inner: self.declared.inner.clone(), ..def }
    }

    /// The types that it was created with.
    pub(super) fn types(&self) -> Option<&Arc<Btf>> {
        self.types.as_ref()
    }

    pub(super) fn has_lock(&self) -> bool {
        self.map.def().fields.iter().any(|field| field.kind == SpecialKind::SpinLock)
    }

    fn has_keys(&self) -> bool {
        !matches!(self.map.kind(), MapKind::Queue | MapKind::Stack | MapKind::BloomFilter)
    }

    pub(super) fn lookup(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        let found = match self.map.kind() {
            MapKind::Queue | MapKind::Stack => self.map.peek(),
            MapKind::BloomFilter => {
                let there = self.map.contains(value).map_err(number)?;
                return if there { Ok(()) } else { Err(Errno::ENOENT) };
            }
            _ if flags & LOCK != 0 => self.map.lookup_locked(key),
            // No key of a trie is that long.
            MapKind::LpmTrie => match self.map.lookup(key) {
                Err(MapError::PrefixTooLong { .. }) => Ok(None),
                found => found,
            },
            _ => self.map.lookup(key),
        };
        copy(found, value)
    }

    pub(super) fn update(&self, key: &[u8], value: Value<'_, SysEngine>, flags: u64) -> Result<(), Errno> {
        let index = || key.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::EINVAL);
        match (&self.holds, value) {
            (Holds::Programs(array), Value::Program(program)) => {
                array.set(index()?, program.program()).map(drop).map_err(|error| errno(&error))
            }
            (Holds::Maps(array), Value::Map(inner)) => {
                array.set(index()?, &inner.map).map(drop).map_err(|error| errno(&error))
            }
            (Holds::MapsByKey(table), Value::Map(inner)) => {
                if let Some(wanted) = &self.map.def().inner {
                    contract::fits(wanted, &inner.map, self.cpus).map_err(|error| errno(&error))?;
                }
                let there = table.get(key).is_some();
                match UpdateFlags::from_number(flags) {
                    Some(UpdateFlags::NoExist) if there => return Err(Errno::EEXIST),
                    Some(UpdateFlags::Exist) if !there => return Err(Errno::ENOENT),
                    Some(UpdateFlags::Any | UpdateFlags::NoExist | UpdateFlags::Exist) => {}
                    _ => return Err(Errno::EINVAL),
                }
                table.set(key, &inner.map).map(drop).map_err(|error| errno(&error))
            }
            (Holds::Targets(targets), Value::Target(bytes, program)) => {
                let bytes = [bytes, &[0; 4]].concat();
                let flags = UpdateFlags::from_number(flags).ok_or(Errno::EINVAL)?;
                self.map.update(key, &bytes, flags).map_err(number)?;
                let Some(program) = program else { return Ok(()) };
                let set = targets.set_program(index()?, program.program());
                set.map_err(|error| {
                    // Half of an update is none.
                    let _removed = self.map.delete(key);
                    errno(&error)
                })
            }
            (Holds::Bytes, Value::PerfEvent(event)) => {
                self.map.set_perf_event(index()?, Some(event)).map(drop).map_err(number)
            }
            (Holds::Bytes, Value::Socket { socket, .. }) => {
                let flags = UpdateFlags::from_number(flags).ok_or(Errno::EINVAL)?;
                self.map.set_member(key, sockets::member(socket), flags).map(drop).map_err(number)
            }
            (_, Value::Bytes(bytes)) => {
                let flags = UpdateFlags::from_number(flags).ok_or(Errno::EINVAL)?;
                let done = if self.has_keys() {
                    self.map.update(key, bytes, flags)
                } else {
                    self.map.push(bytes, flags)
                };
                done.map_err(number)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let index = || key.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::EINVAL);
        let removed = |was: bool| if was { Ok(()) } else { Err(Errno::ENOENT) };
        match &self.holds {
            Holds::Programs(array) => {
                removed(array.remove(index()?).map_err(|error| errno(&error))?.is_some())
            }
            Holds::Maps(array) => removed(array.remove(index()?).map_err(|error| errno(&error))?.is_some()),
            Holds::MapsByKey(table) => removed(table.remove(key).map_err(|error| errno(&error))?.is_some()),
            Holds::Bytes if self.map.kind() == MapKind::PerfEventArray => {
                removed(self.map.set_perf_event(index()?, None).map_err(number)?)
            }
            Holds::Bytes if self.map.kind() == MapKind::StackTrace => {
                // There are as many as the next power of two.
                let most = self.map.def().max_entries.next_power_of_two();
                if index()? >= most { Err(Errno::E2BIG) } else { self.map.delete(key).map_err(number) }
            }
            Holds::Bytes | Holds::Targets(_) => self.map.delete(key).map_err(number),
        }
    }

    pub(super) fn take(&self, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
        // Taken as a whole, so the lock adds nothing.
        let found = match self.map.kind() {
            MapKind::Queue | MapKind::Stack => self.map.pop(),
            _ => self.map.lookup_and_delete(key),
        };
        copy(found, value)
    }

    pub(super) fn next_key(&self, after: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        copy(self.map.next_key(after), next)
    }

    pub(super) fn batch(&self, from: Option<&[u8]>, count: usize, take: bool) -> Result<Batch, Errno> {
        let mut cursor = match from {
            Some(position) => self.map.cursor_at(position),
            None => skep_maps::BatchCursor::default(),
        };
        let found = if take {
            self.map.lookup_and_delete_batch(&mut cursor, count)
        } else {
            self.map.lookup_batch(&mut cursor, count)
        };
        let elements = found.map_err(number)?;
        let next = (!cursor.is_at_end()).then(|| self.map.position_of(&cursor));
        Ok(Batch { elements, next })
    }
}

/// Types must have the sizes of keys and values.
fn check_sizes(btf: &Btf, def: &MapDef, key: u32, value: u32) -> Result<(), Errno> {
    let size = |ty| btf.size(ty).map_err(|_| Errno::EINVAL);
    if key != 0 && size(key)? != def.key_size {
        return Err(Errno::EINVAL);
    }
    // Arenas have no values.
    if def.kind != MapKind::Arena && size(value)? != def.value_size {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn number(error: MapError) -> Errno {
    Errno(error.errno())
}

fn copy(found: Result<Option<Vec<u8>>, MapError>, into: &mut [u8]) -> Result<(), Errno> {
    let found = found.map_err(number)?.ok_or(Errno::ENOENT)?;
    if found.len() != into.len() {
        return Err(Errno::EINVAL);
    }
    into.copy_from_slice(&found);
    Ok(())
}
