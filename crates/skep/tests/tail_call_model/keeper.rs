//! The keeper: reclaims retired objects.
//!
//! ```text
//!    Idle ── take what is retired ──> Syncing ── all CPUs have synchronised ──> Waiting ── passed ──> reclaim, Idle
//!            membarrier SYNC_CORE                 cookie                         no section is open
//!                                                                                that the cookie found open
//! ```
//!
//! After the membarrier no CPU can *fetch* the old word any more. CPUs that have fetched it are in a section, and
//! the cookie waits for these.

use crate::machine::Code;
use crate::set::Set;
use crate::state::{Agent, Keeper, Mistake, Model, State};
use crate::steps::{Steps, What, Who};

pub(crate) fn steps(model: &Model, state: &State, steps: &mut Steps) {
    let mut then = *state;
    let have_synchronised = !state.cpus.iter().any(|cpu| cpu.owes.contains(Agent::Keeper));
    let has_passed = !state.cpus.iter().any(|cpu| cpu.holds_up.contains(Agent::Keeper));
    let what = match state.keeper {
        Keeper::Idle if state.incoming.is_empty() => return,
        Keeper::Idle => {
            (then.batch, then.incoming) = (then.incoming, Set::EMPTY);
            let sync = !model.makes(Mistake::LeaveOutSync);
            let cookie = !sync || model.makes(Mistake::TakeCookieBeforeSync);
            if cookie {
                then.take_cookie(Agent::Keeper);
            }
            if sync {
                then.call_membarrier(model.scope.cpus, Agent::Keeper);
            }
            then.keeper = if sync { Keeper::Syncing } else { Keeper::Waiting };
            What::TakeOver { cookie, sync }
        }
        Keeper::Syncing if !have_synchronised => return,
        Keeper::Syncing if model.makes(Mistake::LeaveOutGrace) => reclaim(model, &mut then),
        Keeper::Syncing => {
            if model.makes(Mistake::JoinBatchAfterSync) {
                then.batch = then.retired();
                then.incoming = Set::EMPTY;
            }
            let cookie = !model.makes(Mistake::TakeCookieBeforeSync);
            if cookie {
                then.take_cookie(Agent::Keeper);
            }
            then.keeper = Keeper::Waiting;
            What::SeeSynchronised { cookie }
        }
        Keeper::Waiting if !has_passed => return,
        Keeper::Waiting => reclaim(model, &mut then),
    };
    steps.add(Who::Keeper, what, then);
}

/// Drops the references of the batch. Objects without further references are filled with traps and freed.
fn reclaim(model: &Model, then: &mut State) -> What {
    let batch = std::mem::replace(&mut then.batch, Set::EMPTY);
    let others = then.referred_to().with(then.incoming);
    let others = if model.makes(Mistake::ForgetOtherReferences) { Set::EMPTY } else { others };
    let freed = batch.without(others);
    for place in freed.iter() {
        then.write(model.fetch, place, Code::Free);
    }
    then.keeper = Keeper::Idle;
    What::Reclaim { freed, kept: batch.without(freed) }
}
