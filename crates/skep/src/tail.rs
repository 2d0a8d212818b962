//! The dispatch of tail calls: which program each element of each array of programs holds, and all code that depends on
//! it. Arrays and hash tables of maps are here too, since all of them refer to each other.
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

mod array;
mod collect;
mod hash;
mod retired;
mod shape;

pub use array::{MapArray, ProgramArray};
pub(crate) use collect::CollectOnDrop;
pub use hash::MapHash;
pub(crate) use shape::Shape;

use crate::Error;
use crate::program::Inner;
use crate::runtime::Shared;
use crate::steps::steps;
use shape::Agreed;
use skep_abi::{MapKind, RunEnv};
use skep_interp::Interpreter;
use skep_jit::Compiled;
use skep_maps::{Map, MapError, References};
use skep_text::{Branch, Pokes, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// The dispatch of a runtime: all its arrays of programs and of maps.
#[derive(Default)]
pub(crate) struct Dispatch {
    state: Mutex<State>,
    retired: retired::Retired,
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
    users: BTreeMap<usize, Weak<Inner>>,
    /// How many of its elements hold a program.
    programs: usize,
    /// How many elements of maps of maps hold it.
    outer: usize,
}

/// An element.
#[derive(Default)]
struct Slot {
    program: Option<Arc<Inner>>,
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
    programs: Vec<Arc<Inner>>,
    maps: Vec<Arc<Map>>,
    /// Whether a branch led to them.
    poked: bool,
}

/// The owner stored in each map: it removes the array from the dispatch when the map is dropped.
struct Registered {
    shared: Weak<Shared>,
    key: usize,
}

impl SiteRef {
    fn offset(&self) -> usize {
        self.compiled.sites()[self.number].offset()
    }

    /// What it takes to lead it to a program.
    fn connect(&self, shared: &Shared, entry: usize) -> Result<BranchTarget, skep_text::Error> {
        let stub = self.compiled.stub(&self.compiled.sites()[self.number], &shared.arena, entry)?;
        Ok(stub.map_or(BranchTarget::There, BranchTarget::Through))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut state = shared.dispatch.lock();
        let Some(array) = state.arrays.remove(&self.key) else { return };
        let inner: Vec<_> = array.maps.values().map(|map| key(map)).collect();
        let leaving = state.left(&inner);
        // No program refers to the map, so there are no sites. Programs that it held may still be running.
        let programs = array.slots.into_values().filter_map(|slot| slot.program).collect();
        let maps = array.maps.into_values().collect();
        let removed = Removed { programs, maps, ..Removed::default() };
        shared.dispatch.retired.hold(&removed);
        drop(state);
        shared.forget_later(leaving);
        shared.retire(removed);
    }
}

impl SiteRef {
    fn key(&self) -> SiteKey {
        (Arc::as_ptr(&self.compiled).addr(), self.number)
    }
}

impl Dispatch {
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
fn entry(map: &Map, index: u32) -> Result<&References, Error> {
    let table = map.references();
    let len = table.map_or(0, References::len);
    let there = table.filter(|_| index < len);
    there.ok_or_else(|| Error::NoSuchEntry { map: map.name().to_owned(), index, len })
}

fn key(map: &Map) -> usize {
    std::ptr::from_ref(map).addr()
}

/// Whether a map holds programs or maps, and so takes part in a dispatch.
pub(crate) fn takes_part(map: &Map) -> bool {
    map.references().is_some()
}

/// Whether programs are reached through a map.
fn leads_to_programs(map: &Map) -> bool {
    let inner = map.def().inner.as_ref();
    map.programs().is_some() || inner.is_some_and(|inner| inner.kind == MapKind::ProgArray)
}

fn wrong_program(map: &Map, program: &Inner, agreed: Shape) -> Error {
    Error::WrongProgram {
        map: map.name().to_owned(),
        program: program.name().to_owned(),
        expected: agreed.describe(),
        given: Shape::of(program).describe(),
    }
}

impl Shared {
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
        self.dispatch.lock().arrays.insert(key, array);
        table.extension(|| Registered { shared: Arc::downgrade(self), key });
    }

    /// Whether an array of programs or of maps was made in this runtime.
    pub(crate) fn has_joined(&self, map: &Map) -> bool {
        self.dispatch.lock().array(map).is_some()
    }

    /// The program at an index.
    fn program_at(&self, map: &Map, index: u32) -> Option<Arc<Inner>> {
        self.dispatch.lock().array(map)?.slots.get(&index)?.program.clone()
    }

    /// Sets or empties an element. Returns the old program.
    fn set_program(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        program: Option<&Arc<Inner>>,
    ) -> Result<Option<Arc<Inner>>, Error> {
        self.change(map, index, program.map_or(Change::Remove, Change::Install))
    }

    /// The map of a key.
    fn map_at(&self, outer: &Map, key: &[u8]) -> Option<Arc<Map>> {
        self.dispatch.lock().array(outer)?.maps.get(key).cloned()
    }

    /// Sets or removes the map of a key; the new one fits the template of the outer map. Returns the old map.
    ///
    /// If all elements of a table wait for readers, it waits for them, but not under the lock.
    fn set_map(
        self: &Arc<Self>,
        outer: &Map,
        key: &[u8],
        inner: Option<&Arc<Map>>,
    ) -> Result<Option<Arc<Map>>, Error> {
        const TURNS: u32 = 64;
        for _ in 0..TURNS {
            match self.try_set_map(outer, key, inner) {
                Err(Error::Map(MapError::NoMemory { .. })) => thread::sleep(Duration::from_micros(50)),
                result => return result,
            }
        }
        self.try_set_map(outer, key, inner)
    }

    fn try_set_map(
        self: &Arc<Self>,
        outer: &Map,
        key: &[u8],
        inner: Option<&Arc<Map>>,
    ) -> Result<Option<Arc<Map>>, Error> {
        let foreign = |map: &Map| Error::OtherRuntime { map: map.name().to_owned() };
        if let Some(inner) = inner.filter(|inner| !inner.fits(&self.domain)) {
            return Err(foreign(inner));
        }
        let mut state = self.dispatch.lock();
        if let Some(inner) = inner
            && takes_part(inner)
            && state.array(inner).is_none()
        {
            return Err(foreign(inner));
        }
        // If no program has agreed with the outer map yet, the inner ones decide.
        let inner_shape = inner.and_then(|inner| state.shape(inner));
        let agreed = inner.filter(|_| leads_to_programs(outer)).zip(state.shape(outer).or(inner_shape));
        let wrong = |inner: &Map, shape: Shape, other: Shape| Error::WrongPrograms {
            map: outer.name().to_owned(),
            inner: inner.name().to_owned(),
            expected: shape.describe(),
            given: other.describe(),
        };
        if let Some((inner, shape)) = agreed {
            state.may_agree(inner, shape).map_err(|other| wrong(inner, shape, other))?;
            state.may_agree(outer, shape).map_err(|other| wrong(inner, other, shape))?;
        }
        if state.array(outer).is_none() {
            return Err(foreign(outer));
        }
        // SAFETY: a map that fits the template, kept alive by the element, and after that by `Retired`.
        unsafe { outer.set_reference(key, inner.map_or(0, |inner| inner.link().handle))? };
        // Nothing fails from here on: otherwise the agreement would stay in the inner array.
        if let Some((inner, shape)) = agreed {
            state.agree(inner, shape).map_err(|other| wrong(inner, shape, other))?;
            state.agree(outer, shape).map_err(|other| wrong(inner, other, shape))?;
        }
        if let Some(array) = inner.and_then(|inner| state.array(inner)) {
            array.outer += 1;
        }
        let array = state.array(outer).ok_or_else(|| foreign(outer))?;
        let old = match inner {
            Some(inner) => array.maps.insert(key.into(), Arc::clone(inner)),
            None => array.maps.remove(key),
        };
        let mut leaving = state.left(&old.iter().map(|map| self::key(map)).collect::<Vec<_>>());
        leaving.extend(state.leave(self::key(outer)));
        let removed = Removed { maps: old.iter().cloned().collect(), ..Removed::default() };
        self.dispatch.retired.hold(&removed);
        drop(state);
        self.forget_later(leaving);
        self.retire(removed);
        Ok(old)
    }

    /// Connects all sites of a program for an element to the program in it.
    fn complete(self: &Arc<Self>, map: &Map, index: u32, compiled: &Arc<Compiled>) -> Result<(), Error> {
        self.change(map, index, Change::Complete(compiled)).map(drop)
    }

    fn change(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        change: Change<'_>,
    ) -> Result<Option<Arc<Inner>>, Error> {
        let table = entry(map, index)?;
        if !matches!(change, Change::Complete(_)) {
            // Before any agreement; `commit` checks that it still holds.
            drop(map.hold_unfrozen()?);
        }
        loop {
            let Some(plan) = self.plan(map, index, &change)? else { return Ok(None) };
            let entry = plan.target.as_ref().map(|target| target.tail_entry()).transpose()?;
            let connect =
                |site: &SiteRef| entry.map_or(Ok(BranchTarget::Nowhere), |entry| site.connect(self, entry));
            let targets = plan.sites.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
            if let Some(removed) = self.commit(map, table, index, &plan, (entry.unwrap_or(0), targets))? {
                let old = removed.programs.first().cloned();
                self.retire(removed);
                return Ok(old);
            }
        }
    }

    /// The plan of a change for the current state.
    fn plan(&self, map: &Map, index: u32, change: &Change<'_>) -> Result<Option<Plan>, Error> {
        let mut state = self.dispatch.lock();
        if state.array(map).is_none() {
            return Err(Error::OtherRuntime { map: map.name().to_owned() });
        }
        if let Change::Install(program) = change {
            state.may_agree(map, Shape::of(program)).map_err(|agreed| wrong_program(map, program, agreed))?;
        }
        let Some(array) = state.array(map) else { return Ok(None) };
        let slot = array.slots.entry(index).or_default();
        let target = match change {
            Change::Install(program) => Some(Arc::clone(program)),
            Change::Remove => None,
            Change::Complete(_) => slot.program.clone(),
        };
        let sites: Vec<_> = match change {
            Change::Complete(compiled) => slot.nowhere(compiled).collect(),
            Change::Install(_) | Change::Remove => {
                slot.sites.values().map(|wired| wired.site.clone()).collect()
            }
        };
        steps(1 + sites.len());
        let nothing = match change {
            Change::Install(_) => false,
            Change::Remove => slot.program.is_none(),
            Change::Complete(_) => sites.is_empty() || target.is_none(),
        };
        let stays = matches!(change, Change::Complete(_));
        Ok((!nothing).then_some(Plan { version: slot.version, stays, target, sites }))
    }

    /// Executes the plan, all or nothing, unless the slot has changed meanwhile. Returns the old contents.
    fn commit(
        self: &Arc<Self>,
        map: &Map,
        table: &References,
        index: u32,
        plan: &Plan,
        (entry, targets): (usize, Vec<BranchTarget>),
    ) -> Result<Option<Removed>, Error> {
        let mut pokes = match plan.sites.is_empty() {
            true => None,
            false => Some(self.arena.pokes()?),
        };
        let mut state = self.dispatch.lock();
        // Until branches and table are changed, under the lock. If the program stays, the element is unchanged.
        let unfrozen = (!plan.stays).then(|| map.hold_unfrozen()).transpose()?;
        if let Some(program) = plan.target.as_ref().filter(|_| !plan.stays) {
            // Others may have agreed on another contract since the plan was made.
            let agreed = state.may_agree(map, Shape::of(program));
            agreed.map_err(|agreed| wrong_program(map, program, agreed))?;
        }
        let slot = state.array(map).and_then(|array| array.slots.get_mut(&index));
        let Some(slot) = slot.filter(|slot| slot.version == plan.version) else {
            drop(state);
            return Ok(None);
        };
        if let Some(batch) = &mut pokes
            && let Err(error) = poke_all(batch, slot, plan, (entry, &targets))
        {
            drop((unfrozen, state));
            // Pokes that were undone may have been run: retire their stubs like replaced ones.
            let stubs = targets.into_iter().filter_map(BranchTarget::into_stub).collect();
            let programs = plan.target.iter().cloned().collect();
            if pokes.is_some_and(|pokes| pokes.finish_later().is_ok()) {
                let removed = Removed { stubs, programs, poked: true, ..Removed::default() };
                self.dispatch.retired.hold(&removed);
                self.retire(removed);
            } else {
                std::mem::forget((stubs, programs));
            }
            return Err(error);
        }
        // SAFETY: a program that agrees with the array, kept alive by the slot, and after that by `Retired`.
        unsafe { table.set(index, entry as u64) };
        let mut removed = Removed { poked: !plan.sites.is_empty(), ..Removed::default() };
        for (site, target) in plan.sites.iter().zip(targets) {
            let Some(wired) = slot.sites.get_mut(&site.key()) else { continue };
            removed.stubs.extend(std::mem::replace(&mut wired.target, target).into_stub());
        }
        slot.version += 1;
        let mut leaving = None;
        if !plan.stays {
            removed.programs.extend(std::mem::replace(&mut slot.program, plan.target.clone()));
            if let Some(array) = state.array(map) {
                array.programs += usize::from(plan.target.is_some());
                array.programs -= removed.programs.len();
            }
            match &plan.target {
                Some(program) => {
                    let agreed = state.agree(map, Shape::of(program));
                    debug_assert!(agreed.is_ok(), "asked above, under the same lock");
                }
                None => leaving = state.leave(key(map)),
            }
        }
        self.dispatch.retired.hold(&removed);
        drop((unfrozen, state));
        self.forget_later(leaving.into_iter().collect());
        if let Some(pokes) = pokes {
            pokes.finish_later()?;
        }
        Ok(Some(removed))
    }

    /// Registers a program's sites and its use of arrays; after a failure nothing stays registered.
    pub(crate) fn connect(self: &Arc<Self>, program: &Arc<Inner>) -> Result<(), Error> {
        if !program.uses_arrays() {
            return Ok(());
        }
        let shape = Shape::of(program);
        for map in program.maps().filter(|map| takes_part(map)) {
            let mut state = self.dispatch.lock();
            if state.array(map).is_none() {
                return Err(Error::OtherRuntime { map: map.name().to_owned() });
            }
            if leads_to_programs(map) {
                state.agree(map, shape).map_err(|agreed| wrong_program(map, program, agreed))?;
            }
            let Some(array) = state.array(map) else { continue };
            array.users.insert(Arc::as_ptr(program).addr(), Arc::downgrade(program));
        }
        let compiled = program.shared_compiled();
        for (number, site) in compiled.sites().iter().enumerate() {
            let Some(map) = program.map(site.map()) else { continue };
            let own = SiteRef { compiled: Arc::clone(compiled), number };
            let mut state = self.dispatch.lock();
            let Some(array) = state.array(map) else { continue };
            let slot = array.slots.entry(site.index()).or_default();
            slot.sites.insert(own.key(), CallSite { site: own, target: BranchTarget::Nowhere });
            slot.version += 1;
        }
        for (map, index) in elements(program) {
            self.complete(map, index, compiled)?;
        }
        Ok(())
    }

    /// Removes a program's sites. No thread runs it any more.
    pub(crate) fn disconnect(self: &Arc<Self>, program: &Inner) {
        let compiled = program.shared_compiled();
        let mut gone = Vec::new();
        for (map, index) in elements(program) {
            let mut state = self.dispatch.lock();
            let slot = state.array(map).and_then(|array| array.slots.get_mut(&index));
            let Some(slot) = slot else { continue };
            gone.push(slot.take(compiled));
            slot.version += 1;
        }
        // Stubs are texts, whose memory is freed after a grace period anyway.
        drop(gone);
        let mut leaving = Vec::new();
        for map in program.maps().filter(|map| takes_part(map)) {
            let mut state = self.dispatch.lock();
            if let Some(array) = state.array(map) {
                array.users.remove(&std::ptr::from_ref(program).addr());
            }
            leaving.extend(state.leave(key(map)));
        }
        self.forget_later(leaving);
    }
}

/// The elements that a program's sites name, each once.
fn elements(program: &Inner) -> impl Iterator<Item = (&Arc<Map>, u32)> {
    let sites = program.shared_compiled().sites();
    let elements: BTreeSet<_> = sites.iter().map(|site| (site.map(), site.index())).collect();
    elements.into_iter().filter_map(|(map, index)| Some((program.map(map)?, index)))
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

/// A change of an element.
enum Change<'a> {
    Install(&'a Arc<Inner>),
    Remove,
    /// Connects the unconnected sites of this program only.
    Complete(&'a Arc<Compiled>),
}

/// The plan of a change, for this version of a slot.
struct Plan {
    version: u64,
    /// Whether the program in the slot stays.
    stays: bool,
    target: Option<Arc<Inner>>,
    sites: Vec<SiteRef>,
}

/// One poke for each site. If one fails, those before it are undone.
fn poke_all<'a>(
    pokes: &mut Pokes<'a>,
    slot: &Slot,
    plan: &'a Plan,
    (entry, targets): (usize, &[BranchTarget]),
) -> Result<(), Error> {
    for (done, (site, target)) in plan.sites.iter().zip(targets).enumerate() {
        // SAFETY: the site is a patchable branch of that text, and may lead to the program's tail entry, or the stub
        // was made for it. Both live until it was replaced, the CPUs were synchronised and the readers have left.
        let poked = unsafe { pokes.branch(site.compiled.text(), site.offset(), target.branch(entry)) };
        let Err(error) = poked else { continue };
        let old = slot.program.as_ref().map_or(Ok(0), |program| program.tail_entry());
        for site in &plan.sites[..done] {
            let wired = slot.sites.get(&site.key());
            let back = old.as_ref().map(|&old| wired.map_or(Branch::Nop, |wired| wired.target.branch(old)));
            // SAFETY: as above; what it led to is still there.
            let back = back.map(|back| unsafe { pokes.branch(site.compiled.text(), site.offset(), back) });
            if !matches!(back, Ok(Ok(()))) {
                // Memory that was writable a moment ago is not writable now, and code leads to a text that is about to
                // be dropped. It is not safe to continue.
                std::process::abort();
            }
        }
        return Err(error.into());
    }
    Ok(())
}

/// For the interpreter: the target of a tail call.
///
/// # Safety
///
/// As [`skep_interp::FindProgram`]; the environment is that of a run of this crate's.
pub(crate) unsafe fn find(map: u64, index: u32, env: *mut RunEnv) -> Option<NonNull<Interpreter>> {
    // SAFETY: the caller's promise; a map's handle is its address, and the host of a run its runtime.
    let (map, shared) = unsafe {
        let map = std::ptr::with_exposed_provenance::<Map>(map as usize);
        (&*map, &*((*env).host as *const Shared))
    };
    let program = shared.program_at(map, index)?;
    // A compiled program can be interpreted: both engines refuse the same programs.
    debug_assert!(program.interpreter().is_ok());
    // When it is removed from the element, it is dropped after a grace period, which waits for this run.
    program.interpreter().ok().map(NonNull::from)
}
