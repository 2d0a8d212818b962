//! Tail calls: which program each element of each array of programs holds, and everything in code that says so. Beside them
//! arrays and hash tables of maps, since all of them refer to each other.
//!
//! An element is known in three places, which change together:
//!
//! ```text
//!   Slot.program     keeps it alive; what the host and the interpreter find
//!   the map's table  its entry address: calls with an index, or an array, that is found at run time read it
//!   Slot.sites       branches in code: calls whose array and index the verifier knows
//! ```
//!
//! # Changing an element
//!
//! ```text
//!   under the lock    which sites, and which version of the slot
//!   without it        a new stub for each site
//!   under the lock    still that version? else once more. One poke for each site, one store to the table
//!   without it        caches; the old stubs and the old program go to `Retired`
//! ```
//!
//! Nobody waits for anybody. What a run finds is the old program or the new one, in each call anew, and all of a tail call
//! is in the stub: there is no state between (`skep_jit::Site`).
//!
//! # When the old program goes
//!
//! ```text
//!   Retired --keeper--> every CPU drops what it fetched ahead --> a grace period of both flavours --> dropped
//! ```
//!
//! A CPU may run a replaced branch for a while, as its architecture allows. So the CPUs are synchronised first, once for
//! all that has come together, and only then begins the grace period that lets the last run leave.
//!
//! # Locks
//!
//! `State`'s is held for bookkeeping and pokes: no code memory is taken or given back, no program or map is dropped and nobody
//! is waited for under it. What is found to be dropped is carried out and dropped outside. Where memory is not mapped
//! writable, a poke takes the arena's lock for one word, and is a system call. A map is held unfrozen under it, for which
//! nobody waits either: a change that meets a freeze gives way to it. A hash table of maps has its buckets locked for the
//! moment of a change, for which one waits as for any leaf.

mod array;
mod collect;
mod hash;
mod retired;

pub use array::{MapArray, ProgramArray};
pub(crate) use collect::LookingForRings;
pub use hash::MapHash;

use crate::Error;
use crate::program::Inner;
use crate::runtime::Shared;
use skep_abi::{Entry, MapKind, ProgramType, RunEnv};
use skep_interp::Interpreter;
use skep_jit::Compiled;
use skep_maps::{Map, MapError, References};
use skep_text::{Branch, Pokes, Text};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// All arrays of programs and of maps of a runtime.
#[derive(Default)]
pub(crate) struct Wiring {
    state: Mutex<State>,
    retired: retired::Retired,
    /// Whether the keeper was asked to look for what nobody can reach. Acquire and Release both ways: who finds it set relies
    /// on a look that is still to come, and that sees what he dropped before.
    collecting: AtomicBool,
}

/// By the address of the map.
#[derive(Default)]
struct State {
    arrays: BTreeMap<usize, Array>,
}

/// An array of programs, or a map of maps.
struct Array {
    map: Weak<Map>,
    /// What programs are given that are in it, or in what is in it, and those that make tail calls through it: from the
    /// first on. An array in an array of maps agrees with that one where that has agreed with anybody.
    shape: Option<Shape>,
    /// The elements that are or were used.
    slots: BTreeMap<u32, Slot>,
    /// The elements of a map of maps, by key.
    maps: BTreeMap<Box<[u8]>, Arc<Map>>,
    /// The programs that refer to it.
    users: Vec<Weak<Inner>>,
}

/// An element.
#[derive(Default)]
struct Slot {
    program: Option<Arc<Inner>>,
    sites: Vec<Wired>,
    /// Counts changes of anything in it.
    version: u64,
}

/// A site in code, and what it leads to.
struct Wired {
    site: SiteRef,
    leads: Leads,
}

/// Where a site's branch leads.
enum Leads {
    /// On behind it.
    Nowhere,
    /// To the program in the slot.
    There,
    /// To the program in the slot, through this.
    Through(Text),
}

impl Leads {
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

/// What a program is given when it is entered: all programs of an array, and those that make tail calls through it, agree.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    program_type: &'static ProgramType,
    entry: Entry,
    /// A program that must not sleep relies on the section that its run is in.
    sleepable: bool,
}

/// What was taken out of a slot, to be dropped when nobody can be in it.
#[derive(Default)]
struct Removed {
    stubs: Vec<Text>,
    programs: Vec<Arc<Inner>>,
    maps: Vec<Arc<Map>>,
    /// Whether branches led there.
    poked: bool,
}

/// What lies in the keeper of each map: takes the array out of the wiring when the map goes.
struct Registered {
    shared: Weak<Shared>,
    key: usize,
}

impl SiteRef {
    fn offset(&self) -> usize {
        self.compiled.sites()[self.number].offset()
    }

    /// What it takes to lead it to a program.
    fn lead(&self, shared: &Shared, entry: usize) -> Result<Leads, skep_text::Error> {
        let stub = self.compiled.sites()[self.number].stub(&self.compiled, &shared.arena, entry)?;
        Ok(stub.map_or(Leads::There, Leads::Through))
    }
}

impl Shape {
    pub(crate) fn of(program: &Inner) -> Self {
        let verified = program.verified();
        Self {
            program_type: verified.program_type(),
            entry: verified.entry(),
            sleepable: verified.is_sleepable(),
        }
    }

    pub(crate) fn describe(self) -> String {
        let sleepable = if self.sleepable { "sleepable " } else { "" };
        match self.entry {
            Entry::Buffer { len } => {
                format!("{sleepable}programs of type {} for {len} bytes", self.program_type.name)
            }
            Entry::Context => format!("{sleepable}programs of type {}", self.program_type.name),
        }
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self.program_type.name == other.program_type.name
            && self.entry == other.entry
            && self.sleepable == other.sleepable
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut state = shared.wiring.lock();
        let Some(array) = state.arrays.remove(&self.key) else { return };
        // No program refers to the map any more, so there are no sites; what it held may still be running.
        let programs = array.slots.into_values().filter_map(|slot| slot.program).collect();
        let maps = array.maps.into_values().collect();
        let removed = Removed { programs, maps, ..Removed::default() };
        shared.wiring.retired.hold(&removed);
        drop(state);
        shared.retire(removed);
    }
}

impl Wiring {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn array(&mut self, map: &Map) -> Option<&mut Array> {
        self.arrays.get_mut(&key(map))
    }

    /// The arrays that programs are found in through a map: itself, or those that are in it.
    fn through(&self, map: &Map) -> Vec<usize> {
        let own = self.arrays.get(&key(map));
        let inner = own.iter().flat_map(|array| array.maps.values()).map(|map| key(map));
        std::iter::once(key(map)).chain(inner).collect()
    }

    /// What programs are given that are found through a map, where that has been agreed on.
    fn agreed(&self, map: &Map) -> Option<Shape> {
        self.through(map).iter().find_map(|key| self.arrays.get(key)?.shape)
    }

    /// Whether [`agree`](Self::agree) would succeed.
    fn may_agree(&self, map: &Map, shape: Shape) -> Result<(), Shape> {
        let agreed = |key: &usize| self.arrays.get(key).and_then(|array| array.shape);
        match self.through(map).iter().filter_map(agreed).find(|agreed| *agreed != shape) {
            Some(other) => Err(other),
            None => Ok(()),
        }
    }

    /// Agrees on what the programs are given that are found through a map, or says what they are given.
    fn agree(&mut self, map: &Map, shape: Shape) -> Result<(), Shape> {
        self.may_agree(map, shape)?;
        for key in self.through(map) {
            if let Some(array) = self.arrays.get_mut(&key) {
                array.shape = Some(shape);
            }
        }
        Ok(())
    }
}

/// The table of a map, which has an element of that index.
fn entry(map: &Map, index: u32) -> Result<&References, Error> {
    let table = map.references();
    let len = table.map_or(0, References::len);
    let there = table.filter(|_| index < len);
    there.ok_or_else(|| Error::NoSuchEntry { map: map.name().to_owned(), index, len })
}

fn key(map: &Map) -> usize {
    std::ptr::from_ref(map).addr()
}

/// Whether a map holds programs or maps, and so belongs to a wiring.
pub(crate) fn is_wired(map: &Map) -> bool {
    map.references().is_some()
}

/// Whether programs are found through a map.
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
    /// Takes an array of programs or of maps into the wiring.
    pub(crate) fn wire(self: &Arc<Self>, map: &Arc<Map>) {
        let Some(table) = map.references() else { return };
        let key = key(map);
        let array = Array {
            map: Arc::downgrade(map),
            shape: None,
            slots: BTreeMap::new(),
            maps: BTreeMap::new(),
            users: Vec::new(),
        };
        self.wiring.lock().arrays.insert(key, array);
        table.keeper(|| Registered { shared: Arc::downgrade(self), key });
    }

    /// Whether an array of programs or of maps was made in this runtime.
    pub(crate) fn has_wired(&self, map: &Map) -> bool {
        self.wiring.lock().array(map).is_some()
    }

    /// The program at an index.
    fn program_at(&self, map: &Map, index: u32) -> Option<Arc<Inner>> {
        self.wiring.lock().array(map)?.slots.get(&index)?.program.clone()
    }

    /// Puts a program into an element, or takes it out; the one that was there.
    fn set_program(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        program: Option<&Arc<Inner>>,
    ) -> Result<Option<Arc<Inner>>, Error> {
        self.change(map, index, program.map_or(Change::Remove, Change::Install))
    }

    /// The map that a key leads to.
    fn map_at(&self, outer: &Map, key: &[u8]) -> Option<Arc<Map>> {
        self.wiring.lock().array(outer)?.maps.get(key).cloned()
    }

    /// Has a key lead to a map of the shape that the outer one says, or to none; the one that was there.
    ///
    /// Where all of a table's elements wait for readers, it waits for them, but not under the lock.
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
        let mut state = self.wiring.lock();
        if let Some(inner) = inner
            && is_wired(inner)
            && state.array(inner).is_none()
        {
            return Err(foreign(inner));
        }
        let agreed = inner.zip(state.agreed(outer));
        let wrong = |inner: &Map, shape: Shape, other: Shape| Error::WrongPrograms {
            map: outer.name().to_owned(),
            inner: inner.name().to_owned(),
            expected: shape.describe(),
            given: other.describe(),
        };
        if let Some((inner, shape)) = agreed {
            state.may_agree(inner, shape).map_err(|other| wrong(inner, shape, other))?;
        }
        if state.array(outer).is_none() {
            return Err(foreign(outer));
        }
        // SAFETY: a map of the right shape, kept alive by the element, and after that by `Retired`.
        unsafe { outer.set_reference(key, inner.map_or(0, |inner| inner.link().handle))? };
        // From here on nothing fails: what did would have left its mark on the inner array.
        if let Some((inner, shape)) = agreed {
            state.agree(inner, shape).map_err(|other| wrong(inner, shape, other))?;
        }
        let array = state.array(outer).ok_or_else(|| foreign(outer))?;
        let old = match inner {
            Some(inner) => array.maps.insert(key.into(), Arc::clone(inner)),
            None => array.maps.remove(key),
        };
        let removed = Removed { maps: old.iter().cloned().collect(), ..Removed::default() };
        self.wiring.retired.hold(&removed);
        drop(state);
        self.retire(removed);
        Ok(old)
    }

    /// Brings all sites of an element in line with the program in it.
    fn complete(self: &Arc<Self>, map: &Map, index: u32) -> Result<(), Error> {
        self.change(map, index, Change::Complete).map(drop)
    }

    fn change(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        change: Change<'_>,
    ) -> Result<Option<Arc<Inner>>, Error> {
        let table = entry(map, index)?;
        if !matches!(change, Change::Complete) {
            // Before anything is agreed on; whether it still holds is seen when it is done.
            drop(map.hold_unfrozen()?);
        }
        loop {
            let Some(plan) = self.plan(map, index, &change)? else { return Ok(None) };
            let entry = plan.target.as_ref().map(|target| target.tail_entry()).transpose()?;
            let lead = |site: &SiteRef| entry.map_or(Ok(Leads::Nowhere), |entry| site.lead(self, entry));
            let leads = plan.sites.iter().map(|(_, site)| lead(site)).collect::<Result<Vec<_>, _>>()?;
            if let Some(removed) = self.commit(map, table, index, &plan, (entry.unwrap_or(0), leads))? {
                let old = removed.programs.first().cloned();
                self.retire(removed);
                return Ok(old);
            }
        }
    }

    /// What must be done, as things are.
    fn plan(&self, map: &Map, index: u32, change: &Change<'_>) -> Result<Option<Plan>, Error> {
        let mut state = self.wiring.lock();
        if state.array(map).is_none() {
            return Err(Error::OtherRuntime { map: map.name().to_owned() });
        }
        if let Change::Install(program) = change {
            state.agree(map, Shape::of(program)).map_err(|agreed| wrong_program(map, program, agreed))?;
        }
        let Some(array) = state.array(map) else { return Ok(None) };
        let slot = array.slots.entry(index).or_default();
        let target = match change {
            Change::Install(program) => Some(Arc::clone(program)),
            Change::Remove => None,
            Change::Complete => slot.program.clone(),
        };
        let all = !matches!(change, Change::Complete);
        let sites =
            slot.sites.iter().enumerate().filter(|(_, wired)| all || matches!(wired.leads, Leads::Nowhere));
        let sites: Vec<_> = sites.map(|(at, wired)| (at, wired.site.clone())).collect();
        let nothing = match change {
            Change::Install(_) => false,
            Change::Remove => slot.program.is_none(),
            Change::Complete => sites.is_empty() || target.is_none(),
        };
        let stays = matches!(change, Change::Complete);
        Ok((!nothing).then_some(Plan { version: slot.version, stays, target, sites }))
    }

    /// Does it, all or nothing, unless the slot has changed meanwhile; what was there before.
    fn commit(
        self: &Arc<Self>,
        map: &Map,
        table: &References,
        index: u32,
        plan: &Plan,
        (entry, leads): (usize, Vec<Leads>),
    ) -> Result<Option<Removed>, Error> {
        let mut pokes = match plan.sites.is_empty() {
            true => None,
            false => Some(self.arena.pokes()?),
        };
        let mut state = self.wiring.lock();
        // To the end of the change of branches and table, under the lock. Where the program stays, the element is not changed.
        let unfrozen = (!plan.stays).then(|| map.hold_unfrozen()).transpose()?;
        if let Some(program) = plan.target.as_ref().filter(|_| !plan.stays) {
            // Since the plan was made the array may have become free, and others have agreed on it.
            let agreed = state.agree(map, Shape::of(program));
            agreed.map_err(|agreed| wrong_program(map, program, agreed))?;
        }
        let slot = state.array(map).and_then(|array| array.slots.get_mut(&index));
        let Some(slot) = slot.filter(|slot| slot.version == plan.version) else {
            drop(state);
            return Ok(None);
        };
        if let Some(batch) = &mut pokes
            && let Err(error) = poke_all(batch, slot, plan, (entry, &leads))
        {
            drop((unfrozen, state));
            // What was taken back may have been run: it goes as what was replaced does.
            let stubs = leads.into_iter().filter_map(Leads::into_stub).collect();
            let programs = plan.target.iter().cloned().collect();
            if pokes.is_some_and(|pokes| pokes.finish_later().is_ok()) {
                let removed = Removed { stubs, programs, poked: true, ..Removed::default() };
                self.wiring.retired.hold(&removed);
                self.retire(removed);
            } else {
                std::mem::forget((stubs, programs));
            }
            return Err(error);
        }
        // SAFETY: a program that agrees with the array, kept alive by the slot, and after that by `Retired`.
        unsafe { table.set(index, entry as u64) };
        let mut removed = Removed { poked: !plan.sites.is_empty(), ..Removed::default() };
        for ((at, _), leads) in plan.sites.iter().zip(leads) {
            removed.stubs.extend(std::mem::replace(&mut slot.sites[*at].leads, leads).into_stub());
        }
        if !plan.stays {
            removed.programs.extend(std::mem::replace(&mut slot.program, plan.target.clone()));
        }
        slot.version += 1;
        self.wiring.retired.hold(&removed);
        drop((unfrozen, state));
        if let Some(pokes) = pokes {
            pokes.finish_later()?;
        }
        Ok(Some(removed))
    }

    /// Makes a program's sites and its use of arrays known; on failure none of it stays.
    pub(crate) fn connect(self: &Arc<Self>, program: &Arc<Inner>) -> Result<(), Error> {
        if !program.uses_arrays() {
            return Ok(());
        }
        let shape = Shape::of(program);
        for map in program.maps().filter(|map| is_wired(map)) {
            let mut state = self.wiring.lock();
            if state.array(map).is_none() {
                return Err(Error::OtherRuntime { map: map.name().to_owned() });
            }
            if leads_to_programs(map) {
                state.agree(map, shape).map_err(|agreed| wrong_program(map, program, agreed))?;
            }
            let Some(array) = state.array(map) else { continue };
            array.users.retain(|user| user.strong_count() > 0);
            array.users.push(Arc::downgrade(program));
        }
        let compiled = program.shared_compiled();
        for (number, site) in compiled.sites().iter().enumerate() {
            let Some(map) = program.map(site.map()) else { continue };
            let own = SiteRef { compiled: Arc::clone(compiled), number };
            let wired = Wired { site: own, leads: Leads::Nowhere };
            let mut state = self.wiring.lock();
            let Some(array) = state.array(map) else { continue };
            let slot = array.slots.entry(site.index()).or_default();
            slot.sites.push(wired);
            slot.version += 1;
        }
        for site in compiled.sites() {
            if let Some(map) = program.map(site.map()) {
                self.complete(map, site.index())?;
            }
        }
        Ok(())
    }

    /// Forgets a program's sites. Nobody runs it any more.
    pub(crate) fn disconnect(&self, program: &Inner) {
        let compiled = program.shared_compiled();
        let mut gone = Vec::new();
        for site in compiled.sites() {
            let Some(map) = program.map(site.map()) else { continue };
            let mut state = self.wiring.lock();
            let slot = state.array(map).and_then(|array| array.slots.get_mut(&site.index()));
            let Some(slot) = slot else { continue };
            let own = |wired: &mut Wired| Arc::ptr_eq(&wired.site.compiled, compiled);
            gone.extend(slot.sites.extract_if(.., own));
            slot.version += 1;
        }
        // Stubs are texts, and wait for readers by themselves.
        drop(gone);
        // What nobody refers to any more, and nobody is in, is free to be used for others.
        for map in program.maps().filter(|map| is_wired(map)) {
            let mut state = self.wiring.lock();
            let inside = |array: &Array| array.maps.values().any(|inner| key(inner) == key(map));
            let free = |array: &Array| {
                let programs = array.slots.values().any(|slot| slot.program.is_some());
                !programs && array.maps.is_empty() && array.users.iter().all(|user| user.strong_count() == 0)
            };
            if !state.arrays.values().any(inside)
                && let Some(array) = state.array(map).filter(|array| free(array))
            {
                array.shape = None;
            }
        }
    }
}

/// What is to become of an element.
enum Change<'a> {
    Install(&'a Arc<Inner>),
    Remove,
    /// Only sites that do not lead anywhere yet.
    Complete,
}

/// What a change does to a slot of that version.
struct Plan {
    version: u64,
    /// Whether the program in the slot stays.
    stays: bool,
    target: Option<Arc<Inner>>,
    /// The sites, by their places in the slot.
    sites: Vec<(usize, SiteRef)>,
}

/// One poke for each site; where one fails, those before it are taken back.
fn poke_all<'a>(
    pokes: &mut Pokes<'a>,
    slot: &Slot,
    plan: &'a Plan,
    (entry, leads): (usize, &[Leads]),
) -> Result<(), Error> {
    for (done, ((_, site), leads)) in plan.sites.iter().zip(leads).enumerate() {
        // SAFETY: the site is a patchable branch of that text, and may lead to the program's tail entry, or the stub was made
        // for it. Both live until it was replaced, the CPUs were synchronised and the readers have left.
        let poked = unsafe { pokes.branch(site.compiled.text(), site.offset(), leads.branch(entry)) };
        let Err(error) = poked else { continue };
        let old = slot.program.as_ref().map_or(Ok(0), |program| program.tail_entry());
        for (at, site) in &plan.sites[..done] {
            let back = old.as_ref().map(|&old| slot.sites[*at].leads.branch(old));
            // SAFETY: as above; what it led to is still there.
            let back = back.map(|back| unsafe { pokes.branch(site.compiled.text(), site.offset(), back) });
            if !matches!(back, Ok(Ok(()))) {
                // Memory that could be written a moment ago cannot be any more, and code leads to what is about to be
                // dropped. Nothing that goes on from here is safe.
                std::process::abort();
            }
        }
        return Err(error.into());
    }
    Ok(())
}

/// For the interpreter: what a tail call leads to.
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
    // What was compiled can be interpreted: both refuse the same.
    debug_assert!(program.interpreter().is_ok());
    // Taken out of the element, it is dropped after a grace period, which waits for this run.
    program.interpreter().ok().map(NonNull::from)
}
