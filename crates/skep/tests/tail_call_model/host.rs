//! A host that waits until no CPU runs what was replaced before: one call of `Runtime::synchronize`.
//!
//! ```text
//!    Idle ── membarrier SYNC_CORE ──> Syncing ── all CPUs have synchronised ──> Waiting ── passed ──> Returned
//!                                                cookie
//! ```
//!
//! It makes its own membarrier call: an empty list of retired objects may mean that the keeper has taken them and
//! is not that far.

use crate::set::Set;
use crate::state::{Agent, Host, Mistake, Model, State, Updater, Version};
use crate::steps::{Steps, What, Who};

pub(crate) fn steps(model: &Model, state: &State, steps: &mut Steps) {
    let mut then = *state;
    let what = match state.host {
        Host::Idle if !model.scope.synchronizes => return,
        Host::Idle => {
            then.expired = state.replaced();
            let sync = !(model.makes(Mistake::LeaveSyncToKeeper) && state.incoming.is_empty());
            if sync {
                then.call_membarrier(model.scope.cpus, Agent::Host);
            }
            then.host = Host::Syncing;
            What::CallSynchronize { sync }
        }
        Host::Syncing if state.cpus.iter().any(|cpu| cpu.owes.contains(Agent::Host)) => return,
        Host::Syncing => {
            then.take_cookie(Agent::Host);
            then.host = Host::Waiting;
            What::TakeCookie
        }
        Host::Waiting if state.cpus.iter().any(|cpu| cpu.holds_up.contains(Agent::Host)) => return,
        Host::Waiting => {
            then.host = Host::Returned;
            What::Return
        }
        Host::Returned => return,
    };
    steps.add(Who::Host, what, then);
}

impl State {
    /// Programs that were replaced or removed by finished updates and that no updater is about to install again.
    fn replaced(&self) -> Set<Option<Version>> {
        let in_hands = self.updaters.iter().flat_map(|updater| match *updater {
            Updater::Idle => [None; 2],
            Updater::Prepared(new) => [new.map(|new| new.version), None],
            Updater::Updating(_, update) => [update.new.map(|new| new.version), update.was],
        });
        let others: Set<_> = in_hands.chain([self.value()]).collect();
        (1..=self.loaded).map(|number| Some(Version(number))).collect::<Set<_>>().without(others)
    }
}
