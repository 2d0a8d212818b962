//! The dispatch of tail calls: which program each element of each array of programs holds, and all code that depends on
//! it. Arrays and hash tables of maps are here too, since all of them refer to each other. The dispatch knows a program
//! only as an [`Image`]: runs and the host's handles are modules above it.
//!
//! An element is stored in three places, which change together:
//!
//! ```text
//!   Slot.program     keeps it alive; the host and the interpreter read it
//!   the map's table  its entry address, read by calls whose index or array is computed at run time
//!   Slot.sites       branches in code: calls whose array and index the verifier knows
//! ```
//!
//! # Changing an element
//!
//! ```text
//!   locked      note the sites, and the version of the slot
//!   unlocked    make a new stub for each site
//!   locked      same version? else start again. One poke for each site, one store to the table
//!   unlocked    synchronise caches; the old stubs and the old program go to `Retired`
//! ```
//!
//! Neither changes nor runs wait. Each call finds the old program or the new one. The whole tail call is in the stub,
//! so there is no state in between (`skep_jit::Site`).
//!
//! # When the old program is dropped
//!
//! ```text
//!   Retired --keeper--> every CPU drops prefetched instructions --> a grace period of both flavours --> dropped
//! ```
//!
//! The architecture lets a CPU run a replaced branch for a while. So the CPUs are synchronised first, once for all
//! retired objects, and only then the grace period begins in which the last run leaves.
//!
//! [`shape`] has the entry contract of an array, and how long it holds.
//!
//! # Locks
//!
//! The lock of `State` protects bookkeeping and pokes. Under it no code memory is allocated or freed, no program or map
//! is dropped, and nothing is waited for. Objects to be dropped are moved out and dropped after it. If no writable
//! mapping exists, a poke takes the arena's lock for one word and makes a system call. A map is kept unfrozen under the
//! lock without waiting: a change that meets a freeze gives up. The bucket lock of a hash table of maps is a leaf and
//! is taken under it for the time of one change.

mod change;
mod collect;
mod connect;
mod entries;
mod maps;
mod retired;
mod shape;

pub(crate) use collect::CollectOnDrop;
pub(crate) use connect::Connected;
pub(crate) use entries::{EntryHook, EntryKind, WatchFns, Watchers};
pub(crate) use shape::Shape;

use crate::error::Error;
use crate::holders::Holders;
use crate::image::Image;
use crate::steps::steps;
use shape::Agreed;
use skep_abi::MapKind;
use skep_jit::Compiled;
use skep_maps::objects::Objects;
use skep_maps::{Map, References};
use skep_rcu::Domain;
use skep_text::{Arena, Branch, Text};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The dispatch of a runtime: all its arrays of programs and of maps.
pub(crate) struct Dispatch {
    arena: Arena,
    domain: Domain,
    /// What programs allocate; maps keep it.
    pub(crate) objects: Arc<Objects>,
    /// Whether code is never changed: then no tail call is a branch that has to be poked.
    fixed_code: bool,
    /// What compiled code calls around watched functions.
    watch: WatchFns,
    state: Mutex<State>,
    retired: retired::Retired,
    /// Maps with timers that programs may reach.
    pub(crate) holders: Holders,
    /// Whether a collection is pending. Acquire and Release both ways: a thread that finds it set relies on a later
    /// collection, which sees what the thread dropped before.
    collecting: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Keyed by the address of the map.
    arrays: BTreeMap<usize, Array>,
    /// The number of waits so far after which a shape is forgotten.
    waits: u64,
}

/// The address of a program's code, and the number of a site in it.
type SiteKey = (usize, usize);

/// An array of programs, or a map of maps.
struct Array {
    map: Weak<Map>,
    /// The entry contract of all programs that are reachable through this array and of all that tail-call through it;
    /// the first one sets it. If a map of maps has one, all arrays in it have the same.
    agreed: Option<Agreed>,
    /// The elements that were ever used.
    slots: BTreeMap<u32, Slot>,
    /// The elements of a map of maps, by key.
    maps: BTreeMap<Box<[u8]>, Arc<Map>>,
    /// The programs that refer to it, by their addresses.
    users: BTreeMap<usize, Weak<Connected>>,
    /// How many of its elements hold a program.
    programs: usize,
    /// How many elements of maps of maps hold it.
    outer: usize,
}

/// An element.
#[derive(Default)]
struct Slot {
    program: Option<Arc<Connected>>,
    /// Keyed by program, so that a program's sites are found.
    sites: BTreeMap<SiteKey, CallSite>,
    /// Counts all changes of the slot.
    version: u64,
}

/// A call site, and its current target.
struct CallSite {
    site: SiteRef,
    target: BranchTarget,
}

/// The target of a site's branch.
enum BranchTarget {
    /// The next instruction.
    Nowhere,
    /// The program in the slot.
    There,
    /// The program in the slot, through this stub.
    Through(Text),
}

impl BranchTarget {
    fn branch(&self, entry: usize) -> Branch {
        match self {
            Self::Nowhere => Branch::Nop,
            Self::There => Branch::To(entry),
            Self::Through(stub) => Branch::To(stub.address()),
        }
    }

    fn into_stub(self) -> Option<Text> {
        match self {
            Self::Nowhere | Self::There => None,
            Self::Through(stub) => Some(stub),
        }
    }
}

/// A site of a program.
#[derive(Clone)]
struct SiteRef {
    compiled: Arc<Compiled>,
    number: usize,
}

/// Objects removed from a slot, to be dropped when no run can be in them.
#[derive(Default)]
struct Removed {
    stubs: Vec<Text>,
    programs: Vec<Arc<Connected>>,
    maps: Vec<Arc<Map>>,
    hooks: Vec<Arc<EntryHook>>,
    /// Whether a branch led to them.
    poked: bool,
}

/// The owner stored in each map: it removes the array from the dispatch when the map is dropped.
struct Registered {
    dispatch: Weak<Dispatch>,
    key: usize,
}

impl SiteRef {
    fn offset(&self) -> usize {
        self.compiled.sites()[self.number].offset()
    }

    /// What it takes to lead it to a program.
    fn connect(&self, arena: &Arena, entry: usize) -> Result<BranchTarget, skep_text::Error> {
        let stub = self.compiled.stub(&self.compiled.sites()[self.number], arena, entry)?;
        Ok(stub.map_or(BranchTarget::There, BranchTarget::Through))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(dispatch) = self.dispatch.upgrade() else { return };
        let mut state = dispatch.lock();
        let Some(array) = state.arrays.remove(&self.key) else { return };
        let inner: Vec<_> = array.maps.values().map(|map| key(map)).collect();
        let leaving = state.left(&inner);
        // No program refers to the map, so there are no sites. Programs that it held may still be running.
        let programs: Vec<_> = array.slots.into_values().filter_map(|slot| slot.program).collect();
        Connected::left_arrays(&programs);
        let maps = array.maps.into_values().collect();
        let removed = Removed { programs, maps, ..Removed::default() };
        dispatch.retired.hold(&removed);
        drop(state);
        dispatch.forget_later(leaving);
        dispatch.retire(removed);
    }
}

impl SiteRef {
    fn key(&self) -> SiteKey {
        (Arc::as_ptr(&self.compiled).addr(), self.number)
    }
}

impl Dispatch {
    pub(crate) fn new(arena: Arena, domain: Domain, fixed_code: bool, watch: WatchFns) -> Arc<Self> {
        Arc::new(Self {
            arena,
            domain,
            objects: Arc::default(),
            fixed_code,
            watch,
            state: Mutex::default(),
            retired: retired::Retired::default(),
            holders: Holders::default(),
            collecting: AtomicBool::new(false),
        })
    }

    /// The number of virtual CPUs of programs in it.
    pub(crate) fn cpus(&self) -> u32 {
        self.domain.limit()
    }

    /// Takes an array of programs or of maps into the dispatch.
    pub(crate) fn wire(self: &Arc<Self>, map: &Arc<Map>) {
        let Some(table) = map.references() else { return };
        let key = key(map);
        let array = Array {
            map: Arc::downgrade(map),
            agreed: None,
            slots: BTreeMap::new(),
            maps: BTreeMap::new(),
            users: BTreeMap::new(),
            programs: 0,
            outer: 0,
        };
        self.lock().arrays.insert(key, array);
        table.extension(|| Registered { dispatch: Arc::downgrade(self), key });
    }

    /// Whether an array of programs or of maps was made in this runtime.
    pub(crate) fn has_joined(&self, map: &Map) -> bool {
        self.lock().array(map).is_some()
    }

    /// The program at an index.
    pub(crate) fn program_at(&self, map: &Map, index: u32) -> Option<Arc<Connected>> {
        self.lock().array(map)?.slots.get(&index)?.program.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn array(&mut self, map: &Map) -> Option<&mut Array> {
        self.arrays.get_mut(&key(map))
    }
}

/// The table of a map that has an element with this index.
pub(crate) fn entry(map: &Map, index: u32) -> Result<&References, Error> {
    let table = map.references();
    let len = table.map_or(0, References::len);
    let there = table.filter(|_| index < len);
    there.ok_or_else(|| Error::NoSuchEntry { map: map.name().to_owned(), index, len })
}

fn key(map: &Map) -> usize {
    std::ptr::from_ref(map).addr()
}

/// Whether programs are reached through a map.
fn leads_to_programs(map: &Map) -> bool {
    let inner = map.def().inner.as_ref();
    map.programs().is_some() || inner.is_some_and(|inner| inner.kind == MapKind::ProgArray)
}

fn wrong_program(map: &Map, program: &Image, agreed: Shape) -> Error {
    Error::WrongProgram {
        map: map.name().to_owned(),
        program: program.name().to_owned(),
        expected: agreed.describe(),
        given: Shape::of(program).describe(),
    }
}

impl Slot {
    /// The range of keys of a program's sites.
    fn of(compiled: &Arc<Compiled>) -> RangeInclusive<SiteKey> {
        let address = Arc::as_ptr(compiled).addr();
        (address, 0)..=(address, usize::MAX)
    }

    /// The sites of a program that are not connected yet.
    fn nowhere(&self, compiled: &Arc<Compiled>) -> impl Iterator<Item = SiteRef> {
        let own = self.sites.range(Self::of(compiled)).map(|(_, wired)| wired).inspect(|_| steps(1));
        own.filter(|wired| matches!(wired.target, BranchTarget::Nowhere)).map(|wired| wired.site.clone())
    }

    /// Removes the sites of a program.
    fn take(&mut self, compiled: &Arc<Compiled>) -> Vec<CallSite> {
        let keys: Vec<_> = self.sites.range(Self::of(compiled)).map(|(key, _)| *key).collect();
        steps(1 + keys.len());
        keys.iter().filter_map(|key| self.sites.remove(key)).collect()
    }
}
