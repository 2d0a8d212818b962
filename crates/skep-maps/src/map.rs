//! The map: one type for all kinds, with a side for the host and a side for programs.

mod arena;
mod batch;
mod calls;
mod entries;
mod for_each;
mod holder;
mod locked;
mod members;
mod part;
mod perf;
pub(crate) mod queue;
mod references;
mod ring;
mod shared;
mod stacks;
mod storage;
mod targets;

use std::ptr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::Duration;

use skep_abi::{MapDef, MapFlags, MapKind, MapLink, ProgramTable};
use skep_mem::{Account, Charge};
use skep_rcu::Domain;

use calls::Calls;
pub use entries::Entries;

use crate::caller::Caller;
use crate::create;
use crate::elements::Reclamation;
use crate::error::{Key, MapError, without_keys};
use crate::objects::{self, NotKept, Objects};
use crate::op_error::OpError;
use crate::options::Options;
use crate::table::Table;
use crate::update::UpdateFlags;
use crate::values::{Source, Values};

pub use arena::Arena;
pub use batch::{BatchCursor, BatchError};
pub use shared::SharedValues;
pub use stacks::StackMode;
pub use storage::Storage;
pub use targets::Target;

/// A map. Shared as `Arc<Map>` between the host and the programs that use it.
///
/// All methods may be called from many threads at once. The safe ones are for the host, and not for signal handlers,
/// because they allocate. A thread in a section does not wait for ever for a thread that was stopped in the middle of
/// a change: after about a second, methods that need the same element or its neighbours fail with [`MapError::Busy`].
///
/// Keys and values are byte slices of exactly the map's sizes; a value of a per-CPU kind has
/// [`host_value_size`](Self::host_value_size) bytes, the values of all CPUs in order, each padded with zeroes to 8
/// bytes, as in Linux's system call. The unsafe methods, whose names end in `_ptr`, are for helpers that a verified
/// program calls.
///
/// See the [crate's documentation](crate) for concurrent changes of one element.
///
/// The handle of [`Map::link`] is the map's address, where compiled code expects the program table.
#[derive(Debug)]
#[repr(C)]
pub struct Map {
    /// The table of an array of programs; empty for other kinds.
    table_of_programs: ProgramTable,
    calls: Calls,
    def: MapDef,
    table: Table,
    /// Whether the host has frozen the map. Changes by the host hold it for reading; only `freeze` takes it for
    /// writing.
    frozen: RwLock<bool>,
    memory: Reclamation,
    /// Where objects in its values come from, and what they look like. Dropped after the table, which frees them.
    objects: OnceLock<(Arc<Objects>, Arc<str>)>,
    /// For the memory that is not charged as elements come and go, and for the map. Dropped after all of it.
    _charges: [Charge; 2],
}

/// Keeps a map unfrozen: [`Map::freeze`] waits until this is dropped.
#[derive(Debug)]
#[must_use = "the map may be frozen as soon as this is dropped"]
pub struct Unfrozen<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, bool>);

/// What a map holds: its elements, and deleted ones that wait for readers. Exact while no thread uses the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapStats {
    /// Bytes of memory, as [`Map::memory`] counts them.
    pub bytes: u64,
    /// The largest `bytes` so far.
    pub peak_bytes: u64,
    /// Elements in the map and in changes in progress; for a trie also its nodes without a value. 0 for kinds whose
    /// elements always exist.
    pub in_use: u64,
    /// Elements that were removed or replaced and may not be reused yet.
    pub in_flight: u64,
    /// The largest `in_flight` so far, except what virtual CPUs collect before it is counted.
    pub peak_in_flight: u64,
}

/// Calls a method that all tables have.
macro_rules! each {
    ($map:expr, $table:ident => $body:expr) => {
        match &$map.table {
            Table::Array($table) => $body,
            Table::Hash($table) => $body,
            Table::Trie($table) => $body,
            Table::References($table) => $body,
            Table::Queue($table) => $body,
            Table::Bloom($table) => $body,
            Table::Ring($table) => $body,
            Table::Targets($table) => $body,
            Table::Members($table) => $body,
            Table::UserRing($table) => $body,
            Table::Perf($table) => $body,
            Table::Arena($table) => $body,
        }
    };
}

/// For the host.
impl Map {
    /// Makes an empty map; the elements of arrays are zero. If the definition has [frozen](MapDef::frozen) contents,
    /// they are written to the first element and the map is [frozen](Self::freeze).
    ///
    /// The system promises the memory, and commits it as it is used.
    ///
    /// # Errors
    ///
    /// Variants of [`MapError`] about definitions: a kind that is not provided, sizes that the kind does not allow,
    /// unknown flags, more memory than the limit. Hash tables must fit the limit with all their elements unless they
    /// have the flag `BPF_F_NO_PREALLOC`; with it, and in tries, the limit applies as elements are added.
    pub fn create(def: &MapDef, options: &Options) -> Result<Self, MapError> {
        if options.cpus == 0 {
            return Err(MapError::NoCpus { map: def.name.clone() });
        }
        let failed = |source| MapError::NoReaders { map: def.name.clone(), source };
        let domain = Domain::new(options.cpus).map_err(failed)?;
        Self::create_in(&Reclamation::new(domain), def, options)
    }

    /// As [`create`](Self::create), with a given domain and reuse policy: programs that use the map run in sections
    /// of its domain.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`MapError::CpuCount`] if the options name another number of CPUs than the
    /// domain has slots.
    pub fn create_in(memory: &Reclamation, def: &MapDef, options: &Options) -> Result<Self, MapError> {
        Self::make(memory, def, options, false)
    }

    /// As [`create_in`](Self::create_in), for maps that other processes map as they do with a kernel: see
    /// [`file`](Self::file). Each such map takes a descriptor, and each ring buffer another one for its
    /// [`bell`](Self::bell).
    ///
    /// # Errors
    ///
    /// As [`create_in`](Self::create_in).
    pub fn create_shared_in(memory: &Reclamation, def: &MapDef, options: &Options) -> Result<Self, MapError> {
        Self::make(memory, def, options, true)
    }

    fn make(memory: &Reclamation, def: &MapDef, options: &Options, shared: bool) -> Result<Self, MapError> {
        let slots = memory.domain.limit();
        if options.cpus != 0 && options.cpus != slots {
            return Err(MapError::CpuCount { map: def.name.clone(), cpus: options.cpus, slots });
        }
        let failed = |of: &Option<Arc<Account>>, e| MapError::no_memory(def.name.clone(), e, of.as_deref());
        let counted = Charge::new(memory.count.as_ref(), 1).map_err(|error| failed(&memory.count, error))?;
        // The table knows what it takes once it is there: for a moment that is not charged.
        let table = create::table(def, options, memory, shared)?;
        let charge = Charge::new(memory.account.as_ref(), table.fixed());
        let charge = charge.map_err(|error| failed(&memory.account, error))?;
        let table_of_programs = match &table {
            Table::References(programs) if def.kind == MapKind::ProgArray => programs.table(),
            _ => ProgramTable::default(),
        };
        let map = Self {
            table_of_programs,
            calls: Calls::of(&table, def.key_size),
            def: def.clone(),
            table,
            frozen: RwLock::new(false),
            memory: memory.clone(),
            objects: OnceLock::new(),
            _charges: [charge, counted],
        };
        // Filled here, so that no caller ever sees other contents.
        if let Some(contents) = &def.frozen {
            map.update(&0u32.to_ne_bytes(), contents, UpdateFlags::Any)?;
            map.freeze()?;
        }
        Ok(map)
    }

    /// The definition of the map.
    pub fn def(&self) -> &MapDef {
        &self.def
    }

    /// The map's name.
    pub fn name(&self) -> &str {
        &self.def.name
    }

    /// The map's kind.
    pub fn kind(&self) -> MapKind {
        self.def.kind
    }

    /// The size of a value for the host, in bytes: the value size of the definition; for per-CPU kinds the number of
    /// CPUs times the value size rounded up to 8.
    pub fn host_value_size(&self) -> usize {
        self.values().host_size()
    }

    /// The number of elements: always all in an array, only the present ones in an array of programs or maps; 0 for
    /// bloom filters and ring buffers, which do not count them. Other threads may change it at any moment.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a count of elements; nobody asks a map whether it is empty"
    )]
    pub fn len(&self) -> u32 {
        match &self.table {
            Table::Array(array) => array.len(),
            Table::Hash(hash) => hash.len(),
            Table::Trie(trie) => trie.len(),
            Table::References(programs) => programs.filled(),
            Table::Queue(queue) => queue.len(),
            Table::Targets(targets) => targets.len(),
            Table::Members(members) => members.len(),
            Table::Perf(_) => 0,
            Table::Arena(arena) => arena.used(),
            Table::Bloom(_) | Table::Ring(_) | Table::UserRing(_) => 0,
        }
    }

    /// Bytes of memory that the map has from the system, touched or not.
    pub fn memory(&self) -> u64 {
        each!(self, table => table.memory() as u64)
    }

    /// Elements and memory, in use and waiting for readers.
    pub fn stats(&self) -> MapStats {
        let parts = match &self.table {
            Table::Hash(hash) => Some(hash.stats()),
            Table::Trie(trie) => Some(trie.stats()),
            Table::References(references) => references.stats(),
            Table::Members(members) => members.stats(),
            _ => None,
        };
        let Some((besides, elements)) = parts else {
            let bytes = self.memory();
            return MapStats { bytes, peak_bytes: bytes, ..MapStats::default() };
        };
        let bytes = |bytes: usize| (besides + bytes) as u64;
        MapStats {
            bytes: bytes(elements.bytes),
            peak_bytes: bytes(elements.peak_bytes),
            in_use: elements.in_use as u64,
            in_flight: elements.in_flight as u64,
            peak_in_flight: elements.peak_in_flight as u64,
        }
    }

    /// The domain whose readers the map's elements wait for, and the reuse policy.
    pub fn reuse(&self) -> &Reclamation {
        &self.memory
    }

    /// The value of a key; in a trie, of the longest prefix of the key. `None` if there is none, or if an index
    /// is beyond the end of an array.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::PrefixTooLong`], [`MapError::Busy`]; [`MapError::HoldsReferences`] from
    /// maps of programs and of maps; [`MapError::NoKeys`], here and below, from kinds without keys.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        let mut value = vec![0; self.host_value_size()];
        Ok(self.lookup_into(key, &mut value)?.then_some(value))
    }

    /// As [`lookup`](Self::lookup), into a buffer. Returns whether there was a value; if not, the buffer's contents
    /// are unspecified.
    ///
    /// # Errors
    ///
    /// As for [`lookup`](Self::lookup), and [`MapError::ValueLength`].
    pub fn lookup_into(&self, key: &[u8], value: &mut [u8]) -> Result<bool, MapError> {
        self.check_key(key)?;
        self.check_value(value)?;
        if let Table::Members(members) = &self.table {
            let cookie = members.read(key).map_err(|error| self.explain(error, key))?;
            return Ok(cookie.inspect(|cookie| value.copy_from_slice(&cookie.to_ne_bytes())).is_some());
        }
        let (from, to) = (key.as_ptr(), value.as_mut_ptr());
        // SAFETY: both lengths were checked; `value` is borrowed exclusively.
        unsafe {
            match &self.table {
                Table::Array(array) => Ok(array.read(from, to)),
                Table::Targets(targets) => Ok(targets.read(from, to)),
                Table::Hash(hash) => self.inside(|caller| hash.read(from, to, caller)),
                Table::Trie(trie) => self.inside(|caller| trie.read(from, to, caller)),
                Table::References(_) | Table::Members(_) => Err(OpError::HoldsReferences),
                Table::Queue(_)
                | Table::Bloom(_)
                | Table::Ring(_)
                | Table::UserRing(_)
                | Table::Perf(_)
                | Table::Arena(_) => Err(without_keys(self.kind())),
            }
        }
        .map_err(|error| self.explain(error, key))
    }

    /// Sets the value of a key; for per-CPU kinds, of all CPUs. Locks and other special fields keep their contents,
    /// and are zero in a new element. What the old value owned (objects in lists, trees and kept pointers) is freed.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::ValueLength`], [`MapError::PrefixTooLong`], [`MapError::OutOfRange`],
    /// [`MapError::Exists`] and [`MapError::Missing`] according to the flags (all elements of an array exist),
    /// [`MapError::Full`], [`MapError::NoMemory`], [`MapError::Frozen`], [`MapError::Busy`],
    /// [`MapError::HoldsReferences`]; with [`UpdateFlags::locked`] also [`MapError::NoLock`] and
    /// [`MapError::LockHeld`].
    pub fn update(&self, key: &[u8], value: &[u8], flags: UpdateFlags) -> Result<(), MapError> {
        self.check_key(key)?;
        self.check_value(value)?;
        self.check_target(key, value)?;
        self.change(|| {
            let source = Source::All(value.as_ptr());
            // SAFETY: both lengths were checked.
            let result =
                self.with_retries(|caller| unsafe { self.update_at(key.as_ptr(), source, flags, caller) });
            result.map_err(|error| self.explain(error, key))
        })
    }

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::PrefixTooLong`], [`MapError::Missing`], [`MapError::CannotDelete`] from
    /// arrays, [`MapError::Frozen`], [`MapError::Busy`].
    pub fn delete(&self, key: &[u8]) -> Result<(), MapError> {
        self.check_key(key)?;
        if let Table::Members(members) = &self.table {
            return self.remove_member(members, key);
        }
        self.change(|| {
            // SAFETY: the length was checked.
            let result = self.inside(|caller| unsafe { self.delete_at(key.as_ptr(), caller) });
            result.map_err(|error| self.explain(error, key))
        })
    }

    /// The key that follows another in the map's own order, or the first one; `None` at the end.
    ///
    /// As in Linux, the first key is returned if `after` is not in the map: a walk by this method over a map that
    /// others change may start over. [`entries`](Self::entries) does not.
    ///
    /// Arrays go by index. In tries, longer prefixes come before the prefixes that contain them, then numerically
    /// smaller addresses first. Hash tables have no defined order.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`].
    pub fn next_key(&self, after: Option<&[u8]>) -> Result<Option<Vec<u8>>, MapError> {
        if let Some(after) = after {
            self.check_key(after)?;
        }
        if let Table::Members(members) = &self.table {
            return Ok(members.next_key(after));
        }
        let after = after.map(<[u8]>::as_ptr);
        let mut key = vec![0; self.def.key_size as usize];
        // SAFETY: the length of `after` was checked, `key` is as long.
        let found = unsafe {
            match &self.table {
                Table::Array(array) => {
                    let next = array.next_index(after.map(|after| crate::racy::load4(after)));
                    if let Some(next) = next {
                        key.copy_from_slice(&next.to_ne_bytes());
                    }
                    next.is_some()
                }
                Table::Targets(targets) => {
                    let next = targets.next_index(after.map(|after| crate::racy::load4(after)));
                    if let Some(next) = next {
                        key.copy_from_slice(&next.to_ne_bytes());
                    }
                    next.is_some()
                }
                Table::Hash(hash) => self.inside(|caller| hash.next_key(after, key.as_mut_ptr(), caller)),
                Table::Trie(trie) => self.inside(|caller| trie.next_key(after, key.as_mut_ptr(), caller)),
                Table::References(_) | Table::Members(_) => false,
                Table::Queue(_)
                | Table::Bloom(_)
                | Table::Ring(_)
                | Table::UserRing(_)
                | Table::Perf(_)
                | Table::Arena(_) => {
                    return Err(self.explain(without_keys(self.kind()), &[]));
                }
            }
        };
        Ok(found.then_some(key))
    }

    /// All elements, as pairs of key and value, in the order of [`next_key`](Self::next_key).
    ///
    /// Elements are copied in batches as the iterator advances. An element that stays in the map during the whole
    /// iteration is returned exactly once; one that is inserted or deleted meanwhile may or may not be returned.
    pub fn entries(&self) -> Entries<'_> {
        Entries::new(self)
    }

    /// Forbids the host to change the map from now on, as for the constants of a program; programs may still change
    /// it as the map's flags allow. When this returns, no change by the host is in progress, including changes of the
    /// programs or maps in it.
    ///
    /// Waits for changes in progress. Do not call it while you hold the map [unfrozen](Self::hold_unfrozen).
    ///
    /// Other processes cannot map its [file](Self::file) for writing any more. If programs may only read the map, its
    /// values never change again; otherwise processes that have mapped it already may still write.
    ///
    /// # Errors
    ///
    /// [`MapError::Mapped`] if programs may only read the map, and a process has mapped it for writing. The map is not
    /// frozen then.
    pub fn freeze(&self) -> Result<(), MapError> {
        let mut frozen = self.frozen.write().unwrap_or_else(PoisonError::into_inner);
        if let (Table::Array(array), false) = (&self.table, *frozen) {
            if self.def.flags.contains(MapFlags::RDONLY_PROG) {
                // SAFETY: programs do not write to such maps, and the host does not while this thread has the lock, nor
                // to a frozen map.
                let constant = unsafe { array.block().make_constant() };
                constant.map_err(|source| MapError::Mapped { map: self.def.name.clone(), source })?;
            } else {
                array.block().refuse_writers();
            }
        }
        *frozen = true;
        Ok(())
    }

    /// Whether the host has [frozen](Self::freeze) the map, or is about to.
    pub fn is_frozen(&self) -> bool {
        self.hold_unfrozen().is_err()
    }
}

/// For programs.
impl Map {
    /// The addresses through which compiled code and helpers reach the map.
    ///
    /// The handle is the address of the map itself: valid as long as the map is neither moved nor dropped. So put the
    /// map in its `Arc` first, and keep that `Arc` as long as the link is used. The other addresses are valid as long
    /// as the map is not dropped. An arena has them once its [start](Arena::known_start) is known.
    pub fn link(&self) -> MapLink {
        let (value_base, inline) = match &self.table {
            Table::Array(array) => (Some(array.base()).filter(|_| !self.kind().is_per_cpu()), array.inline()),
            // Programs get the host's addresses of variables.
            Table::Arena(arena) => (arena.known_start(), None),
            _ => (None, None),
        };
        let programs = self.programs().map(|_| self.table_of_programs);
        let arena = match &self.table {
            Table::Arena(arena) => arena.known_start().map(|start| arena.link(start)),
            _ => None,
        };
        MapLink {
            handle: ptr::from_ref(self).expose_provenance() as u64,
            value_base,
            inline,
            programs,
            arena,
        }
    }

    /// Whether programs that run in sections of that domain may use the map. A map whose elements are reused requires
    /// its own domain.
    pub fn fits(&self, domain: &Domain) -> bool {
        match &self.table {
            // Removed members and freed pages wait for readers too.
            Table::Hash(_) | Table::Trie(_) | Table::Members(_) | Table::Arena(_) => {
                self.memory.domain.is(domain)
            }
            Table::References(references) => !references.is_keyed() || self.memory.domain.is(domain),
            Table::Array(_)
            | Table::Queue(_)
            | Table::Bloom(_)
            | Table::Ring(_)
            | Table::UserRing(_)
            | Table::Targets(_)
            | Table::Perf(_) => true,
        }
    }

    /// Keeps the objects that programs put into its values, or into those of maps in it, for as long as the map lives.
    /// `layouts` says what these objects look like. Maps whose values own no objects take everything.
    ///
    /// # Errors
    ///
    /// [`NotKept`]: it has objects of another runtime, or of other layouts.
    pub fn keep_objects(
        &self,
        objects: &Arc<Objects>,
        domain: &Domain,
        layouts: &Arc<str>,
    ) -> Result<(), NotKept> {
        let owns = |def: &MapDef| objects::owns(&def.fields);
        if !owns(&self.def) && !self.def.inner.as_deref().is_some_and(owns) {
            return Ok(());
        }
        let (kept, known) = self.objects.get_or_init(|| (Arc::clone(objects), Arc::clone(layouts)));
        if !Arc::ptr_eq(kept, objects) || !self.memory.domain.is(domain) {
            return Err(NotKept::OtherRuntime);
        }
        if known == layouts { Ok(()) } else { Err(NotKept::OtherLayouts) }
    }

    /// What objects in it look like, as it was told first.
    pub fn object_layouts(&self) -> Option<&Arc<str>> {
        self.objects.get().map(|(_, layouts)| layouts)
    }

    /// The address of a key's value, for a per-CPU kind of that CPU's value; null if there is none.
    ///
    /// The address stays readable and writable for the value size as long as the map lives (with
    /// [`Policy::None`](skep_mem::Policy), as long as the section). In hash tables and tries it is the key's value
    /// until the key is deleted or its element replaced; then it keeps its contents until the section ends, and may
    /// be reused afterwards. With [`Policy::Immediate`](skep_mem::Policy) it may be reused at any moment.
    ///
    /// # Safety
    ///
    /// `key` is readable for the map's key size, at any alignment; others may write there. `cpu` is the calling
    /// thread's slot in the map's [domain](Self::reuse), and the thread is inside a section. Values are shared
    /// memory: Rust code that uses the address makes atomic accesses only.
    #[inline]
    pub unsafe fn lookup_ptr(&self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { (self.calls.look_up)(self, key, cpu) }
    }

    /// Sets the value of a key, for a per-CPU kind that CPU's value (those of other CPUs stay, or are zero if the
    /// key is new). `flags` are the numbers of [`UpdateFlags`].
    ///
    /// Returns 0, or a negative error number as Linux does: `-EINVAL` (22) for unknown flags, for the flag
    /// `BPF_F_LOCK` if values have no lock, and for a prefix that is too long; `-EBUSY` (16) for `BPF_F_LOCK` while
    /// this thread [holds a lock](crate::lock::is_held), in a signal handler that interrupted a change of the same
    /// bucket or trie on this thread, and if another thread does not end its change within a second (nothing is
    /// changed then); `-EEXIST` (17) and `-ENOENT` (2) according to the flags; `-E2BIG` (7) for an index beyond the
    /// end or a full hash table; `-ENOSPC` (28) for a full trie; `-ENOMEM` (12).
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr); `value` is readable for the map's value size, at any alignment, and
    /// others may write there: it may even be a value of this map. For a map of sockets it is what the function demands
    /// that [`let_programs_store`](Self::let_programs_store) was given.
    #[inline]
    pub unsafe fn update_ptr(&self, key: *const u8, value: *const u8, flags: u64, cpu: u32) -> i64 {
        // SAFETY: by the caller's contract.
        unsafe { (self.calls.update)(self, key, value, flags, cpu) }
    }

    /// Removes a key.
    ///
    /// Returns 0, or a negative error number as Linux does: `-ENOENT` (2) if there is no such key, `-EINVAL` (22)
    /// for arrays and for a prefix that is too long, `-EBUSY` (16) as for [`update_ptr`](Self::update_ptr).
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr).
    #[inline]
    pub unsafe fn delete_ptr(&self, key: *const u8, cpu: u32) -> i64 {
        // SAFETY: by the caller's contract.
        unsafe { (self.calls.delete)(self, key, cpu) }
    }
}

impl Map {
    /// # Safety
    ///
    /// `key` is readable for the key size, `source` as [`Values::write`] demands; `caller` is the calling thread.
    unsafe fn update_at(
        &self,
        key: *const u8,
        source: Source,
        flags: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        if flags.is_locked() {
            self.may_lock()?;
        }
        // SAFETY: by the caller's contract.
        unsafe {
            match &self.table {
                Table::Array(array) => array.update(key, source, flags, caller),
                Table::Targets(targets) => targets.update(key, source, flags),
                Table::Hash(_) if self.kind() == MapKind::StackTrace => Err(OpError::FilledByCalls),
                Table::Hash(hash) if self.is_of_cgroups() => {
                    // Programs alone make elements.
                    let flags = match flags {
                        UpdateFlags::Any | UpdateFlags::Exist => UpdateFlags::Exist,
                        UpdateFlags::AnyLocked | UpdateFlags::ExistLocked => UpdateFlags::ExistLocked,
                        UpdateFlags::NoExist | UpdateFlags::NoExistLocked => {
                            return Err(OpError::FilledByCalls);
                        }
                    };
                    hash.update(key, source, flags, caller)
                }
                Table::Hash(hash) => hash.update(key, source, flags, caller),
                Table::Trie(trie) => trie.update(key, source, flags, caller),
                Table::References(_) | Table::Members(_) => Err(OpError::HoldsReferences),
                Table::Queue(_)
                | Table::Bloom(_)
                | Table::Ring(_)
                | Table::UserRing(_)
                | Table::Perf(_)
                | Table::Arena(_) => Err(without_keys(self.kind())),
            }
        }
    }

    /// # Safety
    ///
    /// `key` is readable for the key size; `caller` is the calling thread.
    unsafe fn delete_at(&self, key: *const u8, caller: Caller) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        unsafe {
            match &self.table {
                Table::Array(_) => Err(OpError::CannotDelete),
                Table::Targets(targets) => targets.delete(key),
                Table::Hash(_) if self.is_of_cgroups() => Err(OpError::CannotDelete),
                Table::Hash(hash) => hash.delete(key, caller),
                Table::Trie(trie) => trie.delete(key, caller),
                Table::Members(members) => self.forget_member(members, key, caller),
                Table::References(_) => Err(OpError::HoldsReferences),
                Table::Queue(_)
                | Table::Bloom(_)
                | Table::Ring(_)
                | Table::UserRing(_)
                | Table::Perf(_)
                | Table::Arena(_) => Err(without_keys(self.kind())),
            }
        }
    }

    /// Runs `work` inside a section if the thread has a slot. Never claims one: slots are virtual CPUs, for threads
    /// that run programs.
    fn inside<R>(&self, work: impl FnOnce(Caller) -> R) -> R {
        match self.memory.domain.enter_if_known() {
            Some(section) => work(Caller::Cpu(section.number())),
            None => work(Caller::Host),
        }
    }

    /// As `inside`, and retries while memory waits for readers or is on other CPUs. The number of retries is bounded:
    /// a caller inside a section waits for itself.
    fn with_retries(&self, mut work: impl FnMut(Caller) -> Result<(), OpError>) -> Result<(), OpError> {
        const PAUSE: Duration = Duration::from_micros(100);
        const PAUSES: u32 = 100;
        // This many retries after nothing was seen to wait: the keeper may be moving it.
        const LAST: u32 = 20;
        let (mut pauses, mut last) = (0, 0);
        loop {
            match self.inside(&mut work) {
                Err(OpError::NoMemory(_)) if pauses < PAUSES && last < LAST => {}
                result => return result,
            }
            pauses += 1;
            last = if self.stats().in_flight > 0 { 0 } else { last + 1 };
            thread::sleep(PAUSE);
        }
    }

    fn values(&self) -> &Values {
        each!(self, table => table.values())
    }

    /// Runs a change by the host unless the map is frozen, and makes `freeze` wait for it.
    fn change(&self, work: impl FnOnce() -> Result<(), MapError>) -> Result<(), MapError> {
        let _unfrozen = self.hold_unfrozen()?;
        work()
    }

    fn check_key(&self, key: &[u8]) -> Result<(), MapError> {
        if self.def.key_size == 0 {
            return Err(self.explain(without_keys(self.kind()), key));
        }
        if key.len() == self.def.key_size as usize {
            return Ok(());
        }
        let (map, key_size) = (self.def.name.clone(), self.def.key_size);
        Err(MapError::KeyLength { map, key_size, given: key.len() })
    }

    fn check_value(&self, value: &[u8]) -> Result<(), MapError> {
        let wanted = self.host_value_size();
        if value.len() == wanted {
            return Ok(());
        }
        let value_size = self.def.value_size;
        let cpus =
            self.kind().is_per_cpu().then(|| (wanted / (value_size as usize).next_multiple_of(8)) as u32);
        Err(MapError::ValueLength {
            map: self.def.name.clone(),
            wanted,
            given: value.len(),
            value_size,
            cpus,
        })
    }

    /// The public error for an operation on that key, whose length was checked.
    fn explain(&self, error: OpError, key: &[u8]) -> MapError {
        let map = self.def.name.clone();
        let first = key.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let (kind, max_entries) = (self.kind(), self.def.max_entries);
        let key = Key(key.to_vec());
        match error {
            OpError::Exists => MapError::Exists { map, key },
            OpError::Missing => MapError::Missing { map, key },
            OpError::Full | OpError::TrieFull => MapError::Full { map, kind, key, max_entries },
            OpError::OutOfRange => MapError::OutOfRange { map, index: first, max_entries },
            OpError::PrefixTooLong => {
                MapError::PrefixTooLong { map, len: first, max: (self.def.key_size - 4) * 8 }
            }
            OpError::CannotDelete => MapError::CannotDelete { map, kind },
            OpError::NoLock => MapError::NoLock { map },
            OpError::LockHeld => MapError::LockHeld { map },
            OpError::HoldsReferences => MapError::HoldsReferences {
                map,
                what: match &self.table {
                    Table::Members(members) => members.rules().what,
                    _ if kind == MapKind::ProgArray => "programs",
                    _ => "maps",
                },
            },
            OpError::BadObject { why, errno } => MapError::Object { map, kind, key, why, errno },
            OpError::FilledByCalls => MapError::FilledByCalls { map, kind },
            OpError::NoKeys | OpError::NoKeysAtAll => MapError::NoKeys { map, kind },
            OpError::QueueFull => MapError::QueueFull { map, max_entries },
            OpError::PushFlags => MapError::PushFlags { map, kind },
            OpError::NoQueue => MapError::NotAQueue { map, kind, operation: "push" },
            OpError::Busy => MapError::Busy { map },
            OpError::BadTarget => MapError::BadTarget { map, kind, key },
            OpError::BucketLarger { count, needed } => MapError::BucketLarger { map, count, needed },
            OpError::NoMemory(source) => MapError::no_memory(map, source, self.memory.account.as_deref()),
        }
    }
}

/// A helper's return value.
fn status(result: Result<(), OpError>) -> i64 {
    match result {
        Ok(()) => 0,
        Err(error) => -i64::from(error.errno()),
    }
}
