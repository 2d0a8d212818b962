//! What must never happen, and what must be seen for the result to mean anything.

use std::fmt;

use crate::machine::{At, Code, Cpu, Place};
use crate::set::Set;
use crate::state::{Host, Keeper, Model, State, Updater};
use crate::steps::{Event, What, Who};

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Violation {
    /// A CPU executes reclaimed memory.
    RanReclaimed,
    /// A CPU executes an instruction that it fetched before another one was written there.
    RanLeftovers,
    /// A CPU executes a stub that is not written yet.
    RanUnwritten,
    /// The forbidden state: a frame is unwound, and no jump is taken.
    UnwoundWithoutJump,
    /// A CPU runs a program that was not in the slot at any moment that could explain it, or none although there
    /// always was one.
    RanUnexplained,
    /// A CPU runs a program that was replaced before a call of synchronize that has returned.
    RanAfterSynchronize,
    /// Unreferenced memory that will not be reclaimed.
    Leaked,
    /// More stubs are alive than the bound allows.
    TooManyStubs,
    /// No reader is inside, something is unfinished, and no step is possible.
    Stuck,
}

/// Events that a model must include to be worth anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sight {
    /// A reader fetches a word that has been replaced.
    StaleFetch,
    /// A reader is in a retired stub, with its frame not yet unwound.
    InRetiredStub,
    /// The same, with its frame unwound.
    UnwoundInRetiredStub,
    /// A reader runs a retired program.
    InRetiredTarget,
    /// Code is written where there was other code before.
    Reuse,
    /// An updater is ready while another one holds the slot's lock.
    Contention,
    /// An object is retired while the keeper waits for readers.
    RetiredWhileWaiting,
    /// A program outlives its old stub, because it was installed again.
    ProgramKept,
    /// All updates are done and everything is reclaimed, with a program installed and without.
    QuietWithEntry,
    QuietWithout,
    /// A reader runs a program that will have expired when the host's call returns.
    RunWhileSynchronizing,
}

/// Properties of states. Impossible steps report themselves.
pub(crate) fn violation(model: &Model, state: &State) -> Option<Violation> {
    let all: Set<Place> = (0..model.scope.places).map(Place).collect();
    let is_free = |place: Place| state.memory.at(place) == Code::Free;
    if state.cpus.iter().filter_map(|cpu| cpu.at.place()).any(is_free) {
        return Some(Violation::RanReclaimed);
    }
    if state.host == Host::Returned && state.cpus.iter().any(|cpu| is_expired(state, cpu)) {
        return Some(Violation::RanAfterSynchronize);
    }
    let owned = state.referred_to().with(state.retired());
    if all.without(owned).iter().any(|place| !is_free(place)) {
        return Some(Violation::Leaked);
    }
    (state.stubs_in(all) > model.most_stubs()).then_some(Violation::TooManyStubs)
}

fn is_expired(state: &State, cpu: &Cpu) -> bool {
    let At::Target(place) = cpu.at else { return false };
    matches!(state.memory.at(place), Code::Program(version) if state.expired.contains(Some(version)))
}

/// Whether everything is finished in a state where only readers can make steps.
pub(crate) fn is_quiet(state: &State) -> bool {
    state.keeper == Keeper::Idle
        && state.lock.is_none()
        && state.retired().is_empty()
        && matches!(state.host, Host::Idle | Host::Returned)
        && state.updaters.iter().all(|updater| *updater == Updater::Idle)
}

pub(crate) fn are_readers_outside(state: &State) -> bool {
    state.cpus.iter().all(|cpu| cpu.at == At::Outside)
}

pub(crate) fn sights_of_state(state: &State) -> impl Iterator<Item = Sight> {
    let retired = state.retired();
    let in_retired = state.cpus.iter().filter_map(move |cpu| match cpu.at {
        At::Stub(place) if retired.contains(place) => Some(Sight::InRetiredStub),
        At::Unwound(place) if retired.contains(place) => Some(Sight::UnwoundInRetiredStub),
        At::Target(place) if retired.contains(place) => Some(Sight::InRetiredTarget),
        _ => None,
    });
    let is_ready = |updater: &Updater| matches!(updater, Updater::Prepared { .. });
    let contention = state.lock.is_some() && state.updaters.iter().any(is_ready);
    let late = state.keeper == Keeper::Waiting && !state.incoming.is_empty();
    let is_held_up = state.host == Host::Waiting && state.cpus.iter().any(|cpu| is_expired(state, cpu));
    let is_over = state.updates_left == 0 && is_quiet(state);
    let others = [
        (contention, Sight::Contention),
        (is_held_up, Sight::RunWhileSynchronizing),
        (late, Sight::RetiredWhileWaiting),
        (is_over && state.slot.is_some(), Sight::QuietWithEntry),
        (is_over && state.slot.is_none(), Sight::QuietWithout),
    ];
    in_retired.chain(others.into_iter().filter_map(|(is_seen, sight)| is_seen.then_some(sight)))
}

pub(crate) fn sight_of_event(event: &Event) -> Option<Sight> {
    match event.what {
        What::Fetch { is_stale: true, .. } => Some(Sight::StaleFetch),
        What::Build { reuses: true, .. } => Some(Sight::Reuse),
        What::Reclaim { kept, .. } if !kept.is_empty() => Some(Sight::ProgramKept),
        _ => None,
    }
}

/// Whether a step is a reader's own, and not caused by a membarrier call.
pub(crate) fn is_of_readers(event: &Event) -> bool {
    matches!(event.who, Who::Reader(_)) && !matches!(event.what, What::Synchronise)
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RanReclaimed => "a reader executes memory that was reclaimed",
            Self::RanLeftovers => "a reader executes an old instruction",
            Self::RanUnwritten => "a reader executes a stub that is not written",
            Self::UnwoundWithoutJump => "a frame is unwound and no jump taken",
            Self::RanUnexplained => "no legal order explains what a reader runs",
            Self::RanAfterSynchronize => "a reader runs a program replaced before synchronize was called",
            Self::Leaked => "memory leaks",
            Self::TooManyStubs => "more stubs are alive than the bound",
            Self::Stuck => "no step is possible, and something is unfinished",
        })
    }
}
