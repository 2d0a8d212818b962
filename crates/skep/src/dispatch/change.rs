//! Changes of an element of an array of programs: the plan, and its execution.

use super::{BranchTarget, Connected, Dispatch, Removed, Shape, SiteRef, Slot, entry, key, wrong_program};
use crate::error::Error;
use crate::steps::steps;
use skep_jit::Compiled;
use skep_maps::{Map, References};
use skep_text::{Arena, Branch, Pokes};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A change of an element.
enum Change<'a> {
    Install(&'a Arc<Connected>),
    Remove,
    /// Connects the unconnected sites of this program only.
    Complete(&'a Arc<Compiled>),
}

/// The plan of a change, for this version of a slot.
struct Plan {
    version: u64,
    /// Whether the program in the slot stays.
    stays: bool,
    target: Option<Arc<Connected>>,
    sites: Vec<SiteRef>,
}

impl Dispatch {
    /// Sets or empties an element. Returns the old program.
    pub(crate) fn set_program(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        program: Option<&Arc<Connected>>,
    ) -> Result<Option<Arc<Connected>>, Error> {
        self.change(map, index, program.map_or(Change::Remove, Change::Install))
    }

    /// Connects all sites of a program for an element to the program in it.
    pub(super) fn complete(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        compiled: &Arc<Compiled>,
    ) -> Result<(), Error> {
        self.change(map, index, Change::Complete(compiled)).map(drop)
    }

    fn change(
        self: &Arc<Self>,
        map: &Map,
        index: u32,
        change: Change<'_>,
    ) -> Result<Option<Arc<Connected>>, Error> {
        let table = entry(map, index)?;
        if !matches!(change, Change::Complete(_)) {
            // Before any agreement; `commit` checks that it still holds.
            drop(map.hold_unfrozen()?);
        }
        loop {
            let Some(plan) = self.plan(map, index, &change)? else { return Ok(None) };
            let entry = plan.target.as_ref().map(|target| target.tail_entry(&self.arena)).transpose()?;
            let connect = |site: &SiteRef| {
                entry.map_or(Ok(BranchTarget::Nowhere), |entry| site.connect(&self.arena, entry))
            };
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
        let mut state = self.lock();
        if state.array(map).is_none() {
            return Err(Error::OtherRuntime { map: map.name().to_owned() });
        }
        if let Change::Install(program) = change {
            if program.verified.is_extension() {
                let given = "an extension".to_owned();
                let (map, program) = (map.name().to_owned(), program.name().to_owned());
                return Err(Error::WrongProgram { map, program, expected: "programs".to_owned(), given });
            }
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
        let mut state = self.lock();
        // Until branches and table are changed, under the lock. If the program stays, the element is unchanged.
        let unfrozen = (!plan.stays).then(|| map.hold_unfrozen()).transpose()?;
        if let Some(program) = plan.target.as_ref().filter(|_| !plan.stays) {
            // Others may have agreed on another contract since the plan was made.
            let agreed = state.may_agree(map, Shape::of(program));
            agreed.map_err(|agreed| wrong_program(map, program, agreed))?;
            // Relaxed: changed and read under this lock.
            if program.extended.load(Ordering::Relaxed) > 0 {
                return Err(Error::TailCallee { program: program.name().to_owned() });
            }
        }
        let slot = state.array(map).and_then(|array| array.slots.get_mut(&index));
        let Some(slot) = slot.filter(|slot| slot.version == plan.version) else {
            drop(state);
            return Ok(None);
        };
        if let Some(batch) = &mut pokes
            && let Err(error) = poke_all(batch, &self.arena, slot, plan, (entry, &targets))
        {
            drop((unfrozen, state));
            // Pokes that were undone may have been run: retire their stubs like replaced ones.
            let stubs = targets.into_iter().filter_map(BranchTarget::into_stub).collect();
            let programs = plan.target.iter().cloned().collect();
            if pokes.is_some_and(|pokes| pokes.finish_later().is_ok()) {
                let removed = Removed { stubs, programs, poked: true, ..Removed::default() };
                self.retired.hold(&removed);
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
            Connected::left_arrays(&removed.programs);
            if let Some(program) = &plan.target {
                // Relaxed: as above.
                program.in_arrays.fetch_add(1, Ordering::Relaxed);
            }
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
        self.retired.hold(&removed);
        drop((unfrozen, state));
        self.forget_later(leaving.into_iter().collect());
        if let Some(pokes) = pokes {
            pokes.finish_later()?;
        }
        Ok(Some(removed))
    }
}

/// One poke for each site. If one fails, those before it are undone.
fn poke_all<'a>(
    pokes: &mut Pokes<'a>,
    arena: &Arena,
    slot: &Slot,
    plan: &'a Plan,
    (entry, targets): (usize, &[BranchTarget]),
) -> Result<(), Error> {
    for (done, (site, target)) in plan.sites.iter().zip(targets).enumerate() {
        // SAFETY: the site is a patchable branch of that text, and may lead to the program's tail entry, or the stub
        // was made for it. Both live until it was replaced, the CPUs were synchronised and the readers have left.
        let poked = unsafe { pokes.branch(site.compiled.text(), site.offset(), target.branch(entry)) };
        let Err(error) = poked else { continue };
        let old = slot.program.as_ref().map_or(Ok(0), |program| program.tail_entry(arena));
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
