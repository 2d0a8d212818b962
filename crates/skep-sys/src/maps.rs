//! Maps: creation and the commands about elements.

use crate::attr::{Attr, Batches, Element, Key, MapCreate, NextKey};
use crate::btf::BtfObject;
use crate::caller::Caller;
use crate::engine::{Engine, MapRequest, Value};
use crate::errno::Errno;
use crate::name;
use crate::object::{Access, Handle, Object};
use crate::programs::ProgramObject;
use crate::sockets::is_of_sockets;
use crate::system::System;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use lock_api::Mutex;

/// Numbers of kinds of maps that are treated in a way of their own.
pub(crate) mod kind {
    pub(crate) const HASH: u32 = 1;
    pub(crate) const ARRAY: u32 = 2;
    pub(crate) const PROG_ARRAY: u32 = 3;
    pub(crate) const PERF_EVENT_ARRAY: u32 = 4;
    pub(crate) const PERCPU_HASH: u32 = 5;
    pub(crate) const PERCPU_ARRAY: u32 = 6;
    pub(crate) const CGROUP_ARRAY: u32 = 8;
    pub(crate) const LRU_HASH: u32 = 9;
    pub(crate) const LRU_PERCPU_HASH: u32 = 10;
    pub(crate) const LPM_TRIE: u32 = 11;
    pub(crate) const ARRAY_OF_MAPS: u32 = 12;
    pub(crate) const HASH_OF_MAPS: u32 = 13;
    pub(crate) const DEVMAP: u32 = 14;
    pub(crate) const SOCKMAP: u32 = 15;
    pub(crate) const CPUMAP: u32 = 16;
    pub(crate) const SOCKHASH: u32 = 18;
    pub(crate) const REUSEPORT_SOCKARRAY: u32 = 20;
    pub(crate) const PERCPU_CGROUP_STORAGE: u32 = 21;
    pub(crate) const SK_STORAGE: u32 = 24;
    pub(crate) const DEVMAP_HASH: u32 = 25;
    pub(crate) const QUEUE: u32 = 22;
    pub(crate) const STACK: u32 = 23;
    pub(crate) const STRUCT_OPS: u32 = 26;
    pub(crate) const RINGBUF: u32 = 27;
    pub(crate) const INODE_STORAGE: u32 = 28;
    pub(crate) const TASK_STORAGE: u32 = 29;
    pub(crate) const BLOOM_FILTER: u32 = 30;
    pub(crate) const USER_RINGBUF: u32 = 31;
    pub(crate) const CGRP_STORAGE: u32 = 32;
    pub(crate) const ARENA: u32 = 33;
    /// The first number that Linux 6.12 does not know.
    pub(crate) const END: u32 = 34;
}

/// Maps whose elements belong to objects, which callers name by descriptors. They have no keys to walk over.
const OF_OBJECTS: [u32; 4] = [kind::SK_STORAGE, kind::INODE_STORAGE, kind::TASK_STORAGE, kind::CGRP_STORAGE];

const F_NUMA_NODE: u32 = 1 << 2;
const F_RDONLY: u32 = 1 << 3;
const F_WRONLY: u32 = 1 << 4;
const F_ZERO_SEED: u32 = 1 << 6;
const F_VTYPE_BTF_OBJ_FD: u32 = 1 << 15;
const F_TOKEN_FD: u32 = 1 << 16;
const F_NO_PREALLOC: u32 = 1;
const F_RDONLY_PROG: u32 = 1 << 7;
const F_MMAPABLE: u32 = 1 << 10;
/// Perf events stay in an array when their descriptors are closed.
const F_PRESERVE_ELEMS: u32 = 1 << 11;
/// All flags that hash tables may have.
const HASH_FLAGS: u32 = 0x1df;
/// The most bytes of the key of a `sockhash`.
const SOCKHASH_KEY: u32 = 512;
/// `BPF_F_LOCK`.
const F_LOCK: u64 = 4;

/// What an element of a map of references holds.
enum Held<E: Engine> {
    Program(Arc<ProgramObject<E>>),
    Map(Arc<MapObject<E>>),
}

impl<E: Engine> Held<E> {
    fn id(&self) -> u32 {
        match self {
            Self::Program(program) => program.id(),
            Self::Map(map) => map.id(),
        }
    }
}

/// A map.
pub struct MapObject<E: Engine> {
    id: u32,
    map: E::Map,
    create: MapCreate,
    name: String,
    btf: Option<Arc<BtfObject<E>>>,
    /// The programs or maps in it, by key. Programs of the engine change none of these maps, so it is exact. The lock
    /// is held while the engine changes an element, which waits for no reader.
    held: Mutex<E::Lock, BTreeMap<Vec<u8>, Held<E>>>,
    frozen: AtomicBool,
    /// Descriptors and files that hold it. An array of programs is emptied when there are none: its programs may hold
    /// the array.
    users: AtomicU32,
    cpus: u32,
}

impl<E: Engine> MapObject<E> {
    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The engine's map.
    pub fn map(&self) -> &E::Map {
        &self.map
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its kind.
    pub fn kind(&self) -> u32 {
        self.create.map_type
    }

    /// Whether its perf events stay when the descriptors of the map are closed.
    pub fn keeps_perf_events(&self) -> bool {
        self.create.map_flags & F_PRESERVE_ELEMS != 0
    }

    /// The flags that it was created with.
    pub fn flags(&self) -> u32 {
        self.create.map_flags
    }

    pub(crate) fn create(&self) -> &MapCreate {
        &self.create
    }

    pub(crate) fn btf(&self) -> Option<&Arc<BtfObject<E>>> {
        self.btf.as_ref()
    }

    /// Bytes in a value as callers pass it: of all CPUs, if each has its own.
    pub fn host_value_size(&self) -> usize {
        let size = self.create.value_size as usize;
        match self.kind() {
            kind::PERCPU_HASH | kind::PERCPU_ARRAY | kind::LRU_PERCPU_HASH | kind::PERCPU_CGROUP_STORAGE => {
                size.next_multiple_of(8) * self.cpus as usize
            }
            kind::PROG_ARRAY | kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS => 4,
            _ => size,
        }
    }

    fn holds_references(&self) -> bool {
        matches!(self.kind(), kind::PROG_ARRAY | kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS)
    }

    /// Whether keys are indices, and all indices are keys, whether or not there is something.
    fn is_array_of_descriptors(&self) -> bool {
        matches!(
            self.kind(),
            kind::PROG_ARRAY | kind::PERF_EVENT_ARRAY | kind::CGROUP_ARRAY | kind::ARRAY_OF_MAPS
        )
    }

    /// Whether `held` mirrors its elements.
    fn mirrored(&self) -> bool {
        self.holds_references() || matches!(self.kind(), kind::DEVMAP | kind::DEVMAP_HASH | kind::CPUMAP)
    }

    /// Changes an element and what `held` says of it, together.
    fn change(
        &self,
        key: &[u8],
        change: impl FnOnce() -> Result<Option<Held<E>>, Errno>,
    ) -> Result<(), Errno> {
        let mut held = self.held.lock();
        let old = match change()? {
            Some(new) => held.insert(key.to_vec(), new),
            None => held.remove(key),
        };
        // Dropping the last reference of a map or a program takes locks of its own.
        drop(held);
        drop(old);
        Ok(())
    }

    /// Identifiers in a map of references, from the one after so many elements on.
    fn batch_of_ids(&self, from: Option<&[u8]>, count: usize) -> crate::engine::Batch {
        let first = from.map_or(0, index_of) as usize;
        let held = self.held.lock();
        let wanted = held.iter().skip(first).take(count);
        let elements: Vec<_> =
            wanted.map(|(key, held)| (key.clone(), held.id().to_ne_bytes().to_vec())).collect();
        let end = first.saturating_add(elements.len());
        let next = (end < held.len()).then(|| (end as u32).to_ne_bytes().to_vec());
        crate::engine::Batch { elements, next }
    }

    /// Whether clients may no longer write it.
    pub fn is_frozen(&self) -> bool {
        // Pairs with the store in `freeze`.
        self.frozen.load(Ordering::Acquire)
    }

    /// What may be done through a handle: nothing is written to a frozen map.
    fn access(&self, access: Access) -> Access {
        // Pairs with the store in `freeze`: an update after it has returned is refused. One that overlaps it may be
        // either way, as in Linux.
        Access { write: access.write && !self.frozen.load(Ordering::Acquire), ..access }
    }

    /// A descriptor or a file begins to hold it.
    /// How many handles there are: descriptors, pins, links of iterators.
    pub fn uses(&self) -> u32 {
        // Pairs with nothing: a number to look at.
        self.users.load(Ordering::Relaxed)
    }

    /// The sizes of a key and a value, and the most elements, as its creator gave them.
    pub fn sizes(&self) -> (u32, u32, u32) {
        (self.create.key_size, self.create.value_size, self.create.max_entries)
    }

    /// What its kind takes beside that (`map_extra`).
    pub fn extra(&self) -> u64 {
        self.create.map_extra
    }

    pub(crate) fn begin_use(&self) {
        // A count alone: what follows is ordered by the caller's own handle.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them ends. Returns whether it was the last.
    pub(crate) fn end_use(&self) -> bool {
        // Pairs with the other decrements: the last one sees all that was done through the handles.
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The keys of an array of programs, to be emptied; none for other maps.
    pub(crate) fn take_programs(&self) -> Vec<Vec<u8>> {
        if self.kind() != kind::PROG_ARRAY {
            return Vec::new();
        }
        let held = core::mem::take(&mut *self.held.lock());
        held.into_keys().collect()
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn map_create(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let create: MapCreate = attr.get()?;
        if create.btf_vmlinux_value_type_id != 0 {
            if create.map_type != kind::STRUCT_OPS
                || create.btf_key_type_id != 0
                || create.btf_value_type_id != 0
            {
                return Err(Errno::EINVAL);
            }
        } else if create.btf_key_type_id != 0 && create.btf_value_type_id == 0 {
            return Err(Errno::EINVAL);
        }
        if !matches!(create.map_type, kind::BLOOM_FILTER | kind::ARENA) && create.map_extra != 0 {
            return Err(Errno::EINVAL);
        }
        let access = access_of(create.map_flags)?;
        if create.map_flags & F_NUMA_NODE != 0 && create.numa_node != 0 {
            return Err(Errno::EINVAL);
        }
        if create.map_type == 0 || create.map_type >= kind::END {
            return Err(Errno::EINVAL);
        }
        if create.map_flags & F_TOKEN_FD != 0 {
            return Err(no_token(caller, create.map_token_fd));
        }
        if create.map_ifindex != 0 {
            // No device takes maps.
            return Err(Errno::EOPNOTSUPP);
        }
        check_flags(&create)?;
        let name = name::parse(&create.map_name)?;
        let wants_inner = matches!(create.map_type, kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS);
        let inner = match wants_inner {
            true => Some(caller.handle(create.inner_map_fd)?.map()?.0),
            false => None,
        };
        let typed = create.btf_key_type_id != 0 || create.btf_value_type_id != 0;
        if OF_OBJECTS.contains(&create.map_type) && create.btf_key_type_id == 0 {
            return Err(Errno::EINVAL);
        }
        let btf = if typed { Some(caller.handle(create.btf_fd)?.btf()?) } else { None };
        let request = MapRequest {
            kind: create.map_type,
            key_size: create.key_size,
            value_size: create.value_size,
            max_entries: create.max_entries,
            flags: create.map_flags & !not_of_the_map(create.map_type),
            name: &name,
            extra: create.map_extra,
            inner: inner.as_ref().map(|inner| inner.map()),
            types: btf.as_ref().map(|btf| (btf.types(), create.btf_key_type_id, create.btf_value_type_id)),
        };
        let map = self.engine().create_map(&request)?;
        let id = self.with(|registry| registry.maps.reserve());
        let object = Arc::new(MapObject {
            id,
            map,
            create,
            name,
            btf,
            held: Mutex::new(BTreeMap::new()),
            frozen: AtomicBool::new(false),
            users: AtomicU32::new(0),
            cpus: self.engine().cpus(),
        });
        self.with(|registry| registry.maps.insert(id, &object));
        let handle = Handle::with(self.shared(), Object::Map(object), access);
        caller.install(handle).map(i64::from)
    }

    pub(crate) fn map_lookup(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let element: Element = attr.get()?;
        if element.flags & !F_LOCK != 0 {
            return Err(Errno::EINVAL);
        }
        let (map, access) = caller.handle(element.map_fd)?.map()?;
        if !map.access(access).read {
            return Err(Errno::EPERM);
        }
        self.check_lock(&map, element.flags)?;
        let key = self.key(caller, &map, element.key)?;
        let mut value = vec![0; map.host_value_size()];
        if map.kind() == kind::BLOOM_FILTER {
            caller.read(element.value, &mut value)?;
            self.engine().lookup(map.map(), &key, &mut value, element.flags)?;
            return Ok(0);
        }
        self.value(&map, &key, &mut value, element.flags)?;
        caller.write(element.value, &value)?;
        Ok(0)
    }

    /// Only values with a lock can be asked for under it.
    fn check_lock(&self, map: &MapObject<E>, flags: u64) -> Result<(), Errno> {
        if flags & F_LOCK != 0 && !self.engine().has_lock(map.map()) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// A value: of maps of references the identifier.
    fn value(&self, map: &MapObject<E>, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        match map.kind() {
            kind::PERF_EVENT_ARRAY | kind::RINGBUF | kind::USER_RINGBUF => return Err(Errno::ENOTSUPP),
            kind::ARENA => return Err(Errno::EINVAL),
            _ if !map.holds_references() => {
                self.engine().lookup(map.map(), key, value, flags)?;
                if map.mirrored() && value.len() == 8 {
                    // Of a target's program, the identifier.
                    let id = map.held.lock().get(key).map_or(0, Held::id);
                    value[4..].copy_from_slice(&id.to_ne_bytes());
                }
                return Ok(());
            }
            _ => {}
        }
        let id = map.held.lock().get(key).map(Held::id).ok_or(Errno::ENOENT)?;
        value.copy_from_slice(&id.to_ne_bytes());
        Ok(())
    }

    fn key(&self, caller: &mut impl Caller<E>, map: &MapObject<E>, address: u64) -> Result<Vec<u8>, Errno> {
        let mut key = vec![0; map.create.key_size as usize];
        if key.is_empty() {
            return if address == 0 { Ok(key) } else { Err(Errno::EINVAL) };
        }
        caller.read(address, &mut key)?;
        if is_of_sockets(map.kind()) {
            self.settle_sockets(caller);
        }
        self.owner(caller, map, key)
    }

    /// The key of an element that belongs to an object, from a descriptor of that object. Others stay as they are.
    fn owner(&self, caller: &mut impl Caller<E>, map: &MapObject<E>, key: Vec<u8>) -> Result<Vec<u8>, Errno> {
        let descriptor = index_of(&key).cast_signed();
        let number = match map.kind() {
            kind::TASK_STORAGE => caller.process(descriptor)?.into(),
            kind::CGRP_STORAGE => caller.control_group(descriptor)?.id(),
            kind::SK_STORAGE => self.socket_owner(caller, descriptor)?,
            // The engine's programs hold no inodes.
            kind::INODE_STORAGE => return Err(Errno::EBADF),
            _ => return Ok(key),
        };
        if !self.engine().has_owner(map.map(), number) {
            return Err(Errno::ENOENT);
        }
        let number = u32::try_from(number).or(Err(Errno::ENOENT))?;
        Ok(number.to_ne_bytes().to_vec())
    }

    pub(crate) fn map_update(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let element: Element = attr.get()?;
        let (map, access) = caller.handle(element.map_fd)?.map()?;
        if !map.access(access).write {
            return Err(Errno::EPERM);
        }
        self.check_lock(&map, element.flags)?;
        let key = self.key(caller, &map, element.key)?;
        let mut value = vec![0; map.host_value_size()];
        caller.read(element.value, &mut value)?;
        self.store(caller, &map, &key, &value, element.flags)?;
        Ok(0)
    }

    /// Writes an element; of maps of references the value is a descriptor.
    fn store(
        &self,
        caller: &mut impl Caller<E>,
        map: &MapObject<E>,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let descriptor = |at: usize| {
            let bytes = value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(-1, i32::from_ne_bytes)
        };
        let engine = self.engine();
        match map.kind() {
            _ if map.is_array_of_descriptors() && flags != 0 => Err(Errno::EINVAL),
            _ if map.is_array_of_descriptors() && index_of(key) >= map.create.max_entries => {
                Err(Errno::E2BIG)
            }
            kind::RINGBUF | kind::USER_RINGBUF => Err(Errno::ENOTSUPP),
            kind::ARENA => Err(Errno::EOPNOTSUPP),
            kind::SOCKMAP | kind::SOCKHASH => self.store_socket(caller, map, key, value, flags),
            kind::REUSEPORT_SOCKARRAY => self.store_in_group(caller, map, key, value, flags),
            kind::PERF_EVENT_ARRAY => {
                let event = caller.perf_event(descriptor(0))?;
                engine.update(map.map(), key, Value::PerfEvent(&event), flags)
            }
            kind::CGROUP_ARRAY => {
                let id = caller.control_group(descriptor(0))?.id() as u32;
                engine.update(map.map(), key, Value::Bytes(&id.to_ne_bytes()), flags)
            }
            kind::PROG_ARRAY => {
                let program = caller.handle(descriptor(0))?.program()?;
                map.change(key, || {
                    engine.update(map.map(), key, Value::Program(program.program()), flags)?;
                    Ok(Some(Held::Program(Arc::clone(&program))))
                })
            }
            kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS => {
                let inner = caller.handle(descriptor(0))?.map()?.0;
                map.change(key, || {
                    engine.update(map.map(), key, Value::Map(inner.map()), flags)?;
                    Ok(Some(Held::Map(Arc::clone(&inner))))
                })
            }
            kind::DEVMAP | kind::DEVMAP_HASH | kind::CPUMAP if value.len() == 8 => {
                let program = match descriptor(4) {
                    ..=0 => None,
                    fd => Some(caller.handle(fd)?.program()?),
                };
                let of_engine = program.as_ref().map(|program| program.program());
                map.change(key, || {
                    engine.update(map.map(), key, Value::Target(&value[..4], of_engine), flags)?;
                    Ok(program.clone().map(Held::Program))
                })
            }
            _ => engine.update(map.map(), key, Value::Bytes(value), flags),
        }
    }

    /// As [`MapObject::batch_of_ids`], and removes what it finds: the next ones are at the same place then.
    fn take_ids(&self, map: &MapObject<E>, from: Option<&[u8]>, count: usize) -> crate::engine::Batch {
        let found = map.batch_of_ids(from, count);
        for (key, _) in &found.elements {
            // Another caller may have been faster.
            let _gone = self.remove(map, key);
        }
        let here = from.map_or(0, index_of).to_ne_bytes().to_vec();
        crate::engine::Batch { next: found.next.map(|_| here), ..found }
    }

    pub(crate) fn map_delete(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let element: Key = attr.get()?;
        let (map, access) = caller.handle(element.map_fd)?.map()?;
        if !map.access(access).write {
            return Err(Errno::EPERM);
        }
        let key = self.key(caller, &map, element.key)?;
        self.remove(&map, &key)?;
        Ok(0)
    }

    fn remove(&self, map: &MapObject<E>, key: &[u8]) -> Result<(), Errno> {
        if map.is_array_of_descriptors() && index_of(key) >= map.create.max_entries {
            return Err(Errno::E2BIG);
        }
        match map.kind() {
            kind::RINGBUF | kind::USER_RINGBUF => return Err(Errno::ENOTSUPP),
            _ => {}
        }
        if map.mirrored() {
            return map.change(key, || self.engine().delete(map.map(), key).map(|()| None));
        }
        let of_sockets = matches!(map.kind(), kind::SOCKMAP | kind::SOCKHASH);
        let socket = if of_sockets { self.engine().socket_at(map.map(), key) } else { None };
        self.engine().delete(map.map(), key)?;
        if let Some(socket) = socket {
            self.socket_left(map, socket);
        }
        Ok(())
    }

    pub(crate) fn map_next_key(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let element: NextKey = attr.get()?;
        let (map, access) = caller.handle(element.map_fd)?.map()?;
        if !map.access(access).read {
            return Err(Errno::EPERM);
        }
        if OF_OBJECTS.contains(&map.kind()) {
            return Err(Errno::ENOTSUPP);
        }
        if is_of_sockets(map.kind()) {
            self.settle_sockets(caller);
        }
        let after = match element.key {
            0 => None,
            address => Some(self.key(caller, &map, address)?),
        };
        let mut next = vec![0; map.create.key_size as usize];
        if map.is_array_of_descriptors() {
            let index = after.as_deref().map(index_of).filter(|index| *index < map.create.max_entries);
            let index = index.map_or(0, |index| index + 1);
            if index >= map.create.max_entries {
                return Err(Errno::ENOENT);
            }
            next.copy_from_slice(&index.to_ne_bytes());
        } else if matches!(map.kind(), kind::RINGBUF | kind::USER_RINGBUF) {
            return Err(Errno::ENOTSUPP);
        } else if map.kind() == kind::HASH_OF_MAPS {
            let held = map.held.lock();
            let found = match &after {
                Some(after) if held.contains_key(after) => held
                    .range::<[u8], _>((core::ops::Bound::Excluded(&after[..]), core::ops::Bound::Unbounded))
                    .next(),
                _ => held.iter().next(),
            };
            next.copy_from_slice(found.ok_or(Errno::ENOENT)?.0);
        } else {
            self.engine().next_key(map.map(), after.as_deref(), &mut next)?;
        }
        caller.write(element.next_key, &next)?;
        Ok(0)
    }

    pub(crate) fn map_take(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let element: Element = attr.get()?;
        if element.flags & !F_LOCK != 0 {
            return Err(Errno::EINVAL);
        }
        let (map, access) = caller.handle(element.map_fd)?.map()?;
        let access = map.access(access);
        if !access.read || !access.write {
            return Err(Errno::EPERM);
        }
        self.check_lock(&map, element.flags)?;
        if OF_OBJECTS.contains(&map.kind()) {
            return Err(Errno::ENOTSUPP);
        }
        let key = self.key(caller, &map, element.key)?;
        if !matches!(
            map.kind(),
            kind::HASH
                | kind::PERCPU_HASH
                | kind::LRU_HASH
                | kind::LRU_PERCPU_HASH
                | kind::QUEUE
                | kind::STACK
        ) {
            return Err(Errno::ENOTSUPP);
        }
        let mut value = vec![0; map.host_value_size()];
        self.engine().take(map.map(), &key, &mut value, element.flags)?;
        caller.write(element.value, &value)?;
        Ok(0)
    }

    pub(crate) fn map_freeze(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let fields: crate::attr::ById = attr.get()?;
        let (map, access) = caller.handle(fields.id as i32)?.map()?;
        if map.kind() == kind::STRUCT_OPS {
            return Err(Errno::ENOTSUPP);
        }
        if !map.access(access).write {
            return Err(Errno::EPERM);
        }
        // Where programs only read, the engine knows.
        if map.flags() & (F_MMAPABLE | F_RDONLY_PROG) == F_MMAPABLE
            && caller.is_mapped_for_writing(fields.id as i32)
        {
            return Err(Errno::EBUSY);
        }
        self.engine().freeze(map.map())?;
        // Pairs with the load in `access`.
        map.frozen.store(true, Ordering::Release);
        Ok(0)
    }

    pub(crate) fn map_batch(
        &self,
        caller: &mut impl Caller<E>,
        attr: &Attr,
        what: BatchOf,
    ) -> Result<i64, Errno> {
        const COUNT: usize = core::mem::offset_of!(Batches, count);
        let batch: Batches = attr.get()?;
        let (map, access) = caller.handle(batch.map_fd)?.map()?;
        let access = map.access(access);
        let (reads, writes) = (what != BatchOf::Update && what != BatchOf::Delete, what != BatchOf::Lookup);
        if reads && !access.read || writes && !access.write {
            return Err(Errno::EPERM);
        }
        if !what.is_for(map.kind()) {
            return Err(Errno::ENOTSUPP);
        }
        if batch.elem_flags & !F_LOCK != 0 {
            return Err(Errno::EINVAL);
        }
        self.check_lock(&map, batch.elem_flags)?;
        let zero = 0u32.to_ne_bytes();
        if batch.count == 0 {
            return Ok(0);
        }
        let (key_size, value_size) = (map.create.key_size as usize, map.host_value_size());
        // Memory for what a caller asks for is taken as elements come, never before.
        let count = batch.count as usize;
        if reads {
            attr.put(caller, COUNT, &zero)?;
            let size = if map.holds_references() { 4 } else { self.engine().batch_position_size(map.map()) };
            let mut from = vec![0; size];
            let from = match batch.in_batch {
                0 => None,
                address => {
                    caller.read(address, &mut from)?;
                    Some(&from[..])
                }
            };
            let found = match map.holds_references() {
                true if what == BatchOf::Take => self.take_ids(&map, from, count),
                true => map.batch_of_ids(from, count),
                false => self.engine().batch(map.map(), from, count, what == BatchOf::Take)?,
            };
            for (at, (key, value)) in found.elements.iter().enumerate() {
                caller.write(batch.keys.wrapping_add((at * key_size) as u64), key)?;
                caller.write(batch.values.wrapping_add((at * value_size) as u64), value)?;
            }
            attr.put(caller, COUNT, &(found.elements.len() as u32).to_ne_bytes())?;
            return match found.next {
                Some(next) => caller.write(batch.out_batch, &next).map(|()| 0),
                None => Err(Errno::ENOENT),
            };
        }
        let (mut key, mut value) = (vec![0; key_size], vec![0; value_size]);
        let mut done = 0;
        let mut result = Ok(0);
        for at in 0..count {
            let one = || -> Result<(), Errno> {
                caller.read(batch.keys.wrapping_add((at * key_size) as u64), &mut key)?;
                if what == BatchOf::Delete {
                    return self.remove(&map, &key);
                }
                caller.read(batch.values.wrapping_add((at * value_size) as u64), &mut value)?;
                self.store(caller, &map, &key, &value, batch.elem_flags)
            }();
            if let Err(error) = one {
                result = Err(error);
                break;
            }
            done += 1;
        }
        attr.put(caller, COUNT, &(done as u32).to_ne_bytes())?;
        result
    }
}

/// What a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOf {
    Lookup,
    Take,
    Update,
    Delete,
}

impl BatchOf {
    /// Whether maps of that kind have such batches.
    fn is_for(self, kind: u32) -> bool {
        match kind {
            kind::HASH | kind::PERCPU_HASH | kind::LRU_HASH | kind::LRU_PERCPU_HASH => true,
            kind::ARRAY | kind::PERCPU_ARRAY => matches!(self, Self::Lookup | Self::Update),
            kind::HASH_OF_MAPS => true,
            kind::LPM_TRIE | kind::ARRAY_OF_MAPS => self != Self::Take,
            _ => false,
        }
    }
}

/// Flags that concern the descriptor, the memory's place and the request, but not how the map works.
fn not_of_the_map(kind: u32) -> u32 {
    let always = F_NUMA_NODE | F_RDONLY | F_WRONLY | F_VTYPE_BTF_OBJ_FD | F_TOKEN_FD;
    if kind == kind::PERF_EVENT_ARRAY { always | F_PRESERVE_ELEMS } else { always }
}

/// Flags that the kind does not have, among those that the engine does not see.
fn check_flags(create: &MapCreate) -> Result<(), Errno> {
    let has = |flags: u32| create.map_flags & flags != 0;
    let kind = create.map_type;
    let seeded = [1, 5, 9, 10, 13, 30].contains(&kind);
    let per_cpu = [kind::PERCPU_HASH, kind::PERCPU_ARRAY, kind::LRU_PERCPU_HASH].contains(&kind);
    let without_access = [kind::CPUMAP, kind::RINGBUF, kind::USER_RINGBUF].contains(&kind);
    if has(F_ZERO_SEED) && !seeded
        || has(F_NUMA_NODE) && per_cpu
        || has(F_RDONLY | F_WRONLY) && without_access
    {
        return Err(Errno::EINVAL);
    }
    if [kind::LRU_HASH, kind::LRU_PERCPU_HASH].contains(&kind) && has(F_NO_PREALLOC) && !has(!HASH_FLAGS) {
        return Err(Errno::ENOTSUPP);
    }
    if kind == kind::SOCKHASH && create.key_size > SOCKHASH_KEY {
        return Err(Errno::E2BIG);
    }
    Ok(())
}

/// The error for a descriptor that should be a token: there are none.
pub(crate) fn no_token<E: Engine>(caller: &mut impl Caller<E>, descriptor: i32) -> Errno {
    match caller.handle(descriptor) {
        Err(Errno::EBADF) => Errno::EBADF,
        _ => Errno::EINVAL,
    }
}

pub(crate) fn index_of(key: &[u8]) -> u32 {
    key.try_into().map_or(u32::MAX, u32::from_ne_bytes)
}

/// What the flags of a map or a request let a descriptor do.
pub(crate) fn access_of(flags: u32) -> Result<Access, Errno> {
    match flags & (F_RDONLY | F_WRONLY) {
        0 => Ok(Access::ALL),
        F_RDONLY => Ok(Access { read: true, write: false }),
        F_WRONLY => Ok(Access { read: false, write: true }),
        _ => Err(Errno::EINVAL),
    }
}
