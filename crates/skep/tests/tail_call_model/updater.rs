//! An updater: installs, replaces and removes, while readers run.
//!
//! ```text
//!    install    build program and stub ─┬─ lock, slot ── poke, unlock ── clean ── retire the old
//!               [synchronise: reuse] ───┤
//!    remove     ────────────────────────┘
//! ```
//!
//! Building is one step, since no CPU is sent to unpublished code. A pair takes two pokes to install (second word,
//! then bypass) and to remove (bypass, then second word), and must wait between them while it holds the lock:
//!
//! ```text
//!               bypass              second word
//!    start      jmp over   unwind   nop
//!    install    jmp over   unwind   jmp            all CPUs synchronise
//!               nop        unwind   jmp
//!    remove     jmp over   unwind   jmp            all CPUs synchronise, a grace period passes
//!               jmp over   unwind   nop
//!    never      nop        unwind   nop
//! ```

use crate::machine::{At, Code, Fetch, Place, Spot, Word};
use crate::set::Set;
use crate::state::{Agent, Entry, Mistake, Model, Shape, Stage, State, Update, Updater, Version};
use crate::steps::{Steps, What, Who};

pub(crate) fn steps(model: &Model, state: &State, steps: &mut Steps) {
    for index in 0..model.scope.updaters {
        Hand { model, state, index }.step(steps);
    }
}

struct Hand<'a> {
    model: &'a Model,
    state: &'a State,
    index: u8,
}

impl Hand<'_> {
    fn step(&self, steps: &mut Steps) {
        match self.state.updaters[usize::from(self.index)] {
            Updater::Idle if self.state.updates_left == 0 => {}
            Updater::Idle => {
                if self.may_build() {
                    self.load(steps);
                    self.install_again(steps);
                }
                if self.state.slot.is_some() {
                    self.begin(*self.state, None, What::WantToRemove, steps);
                }
            }
            Updater::Prepared(new) => {
                let is_free = self.state.lock.is_none() || self.makes(Mistake::LeaveOutLock);
                if is_free && self.have_synchronised() {
                    self.lock(new, steps);
                }
            }
            Updater::Updating(stage, update) => match stage {
                Stage::Locked => self.first_poke(update, steps),
                Stage::HalfPoked => self.synchronise_between(update, steps),
                Stage::HalfSyncing => self.wait_between(update, steps),
                Stage::HalfWaiting => {
                    if !self.state.cpus.iter().any(|cpu| cpu.holds_up.contains(self.agent())) {
                        self.last_poke(update, steps);
                    }
                }
                Stage::Poked => self.clean(update, steps),
                Stage::Clean => self.retire(update, steps),
            },
        }
    }

    /// Whether few enough stubs wait that more may be built.
    fn may_build(&self) -> bool {
        let waiting = self.state.stubs_in(self.state.retired());
        waiting <= self.model.scope.waiting || self.makes(Mistake::BuildWithoutBound)
    }

    /// A program that was never installed.
    fn load(&self, steps: &mut Steps) {
        let mut then = *self.state;
        then.loaded += 1;
        let mut free = self.free();
        let (Some(first), second) = (free.next(), free.next()) else { return };
        let (program, stub) = match (self.model.shape, second) {
            (Shape::Pair, _) => (first, None),
            (Shape::SiteAndStub, None) => return,
            // Alternately, so that a stub's place becomes a program's.
            (Shape::SiteAndStub, Some(second)) if then.loaded.is_multiple_of(2) => (second, Some(first)),
            (Shape::SiteAndStub, Some(second)) => (first, Some(second)),
        };
        let entry = Entry { version: Version(then.loaded), program, stub };
        then.write(self.model.fetch, program, Code::Program(entry.version));
        self.build(then, entry, entry.places(), steps);
    }

    /// A host that still has a handle of the installed program installs it again, with a new stub.
    fn install_again(&self, steps: &mut Steps) {
        if let (Some(old @ Entry { stub: Some(_), .. }), Some(stub)) = (self.state.slot, self.free().next()) {
            self.build(*self.state, Entry { stub: Some(stub), ..old }, Set::of(stub), steps);
        }
    }

    /// Writes the stub. `fresh` memory was free before; CPUs that have been there must synchronise.
    fn build(&self, mut then: State, entry: Entry, fresh: Set<Place>, steps: &mut Steps) {
        if let Some(stub) = entry.stub {
            let is_late = self.makes(Mistake::PokeBeforeWriting);
            let code = if is_late { Code::Blank } else { Code::Stub(entry.program) };
            then.write(self.model.fetch, stub, code);
        }
        let reuses = fresh.meets(then.memory.used);
        then.memory.used = then.memory.used.with(fresh);
        if reuses && !self.makes(Mistake::ReuseWithoutSync) {
            self.call_membarrier(&mut then);
        }
        self.begin(then, Some(entry), What::Build { entry, reuses }, steps);
    }

    fn begin(&self, mut then: State, new: Option<Entry>, what: What, steps: &mut Steps) {
        then.updates_left -= 1;
        self.add(then, Updater::Prepared(new), what, steps);
    }

    /// Takes the lock and changes the slot, which readers of the slot see; the site comes next.
    fn lock(&self, new: Option<Entry>, steps: &mut Steps) {
        let mut then = *self.state;
        if new.is_none() && then.slot.is_none() {
            then.lock = self.makes(Mistake::KeepLock).then_some(self.index);
            return self.add(then, Updater::Idle, What::FindEmpty, steps);
        }
        let found = then.slot;
        let mut old = found.map_or(Set::EMPTY, |entry| entry.places());
        if let Some(entry) = found
            && self.makes(Mistake::DropProgramBeforePoke)
        {
            old.remove(entry.program);
            then.incoming.insert(entry.program);
        }
        if new.is_some() && self.makes(Mistake::ForgetReplaced) {
            old = Set::EMPTY;
        }
        then.lock = Some(self.index);
        let update = Update { new, was: then.value(), old };
        then.set_slot(new);
        self.add(then, Updater::Updating(Stage::Locked, update), What::Lock { found, new }, steps);
    }

    fn first_poke(&self, mut update: Update, steps: &mut Steps) {
        let mut then = *self.state;
        let (spot, word, stage) = match (self.model.shape, update.new) {
            (Shape::SiteAndStub, new) => (Spot::Site, new.map_or(Word::Nop, |new| new.jump()), Stage::Poked),
            (Shape::Pair, None) => (Spot::Site, Word::Over, Stage::HalfPoked),
            (Shape::Pair, Some(new)) if update.was.is_none() => (Spot::Tail, new.jump(), Stage::HalfPoked),
            (Shape::Pair, Some(new)) => (Spot::Tail, new.jump(), Stage::Poked),
        };
        then.store(self.model.fetch, spot, word);
        if self.model.shape == Shape::SiteAndStub {
            then.lock = None;
        }
        if stage == Stage::Poked && self.makes(Mistake::RetireBeforeClean) {
            then.incoming = then.incoming.with(std::mem::replace(&mut update.old, Set::EMPTY));
        }
        self.add(then, Updater::Updating(stage, update), What::Poke { spot, word }, steps);
    }

    fn synchronise_between(&self, update: Update, steps: &mut Steps) {
        let mut then = *self.state;
        then.clean();
        if !self.makes(Mistake::LeaveOutSyncBetween) {
            self.call_membarrier(&mut then);
        }
        self.add(then, Updater::Updating(Stage::HalfSyncing, update), What::Clean, steps);
    }

    fn wait_between(&self, update: Update, steps: &mut Steps) {
        if !self.have_synchronised() {
            return;
        }
        // No CPU can be between the words of a pair that is not installed yet.
        if update.new.is_some() || self.makes(Mistake::LeaveOutGraceBetween) {
            return self.last_poke(update, steps);
        }
        let mut then = *self.state;
        then.take_cookie(self.agent());
        self.add(then, Updater::Updating(Stage::HalfWaiting, update), What::TakeCookie, steps);
    }

    fn last_poke(&self, update: Update, steps: &mut Steps) {
        let mut then = *self.state;
        let spot = if update.new.is_some() { Spot::Site } else { Spot::Tail };
        then.store(self.model.fetch, spot, Word::Nop);
        self.add(then, Updater::Updating(Stage::Poked, update), What::Poke { spot, word: Word::Nop }, steps);
    }

    fn clean(&self, update: Update, steps: &mut Steps) {
        let mut then = *self.state;
        let next = Updater::Updating(Stage::Poked, update);
        if let Some(Entry { stub: Some(stub), program, .. }) = update.new {
            // The stub is unwritten only with that mistake.
            match then.memory.at(stub) {
                Code::Blank => {
                    then.write(self.model.fetch, stub, Code::HalfStub);
                    return self.add(then, next, What::WriteHalf(stub), steps);
                }
                Code::HalfStub => {
                    then.write(self.model.fetch, stub, Code::Stub(program));
                    return self.add(then, next, What::WriteRest(stub), steps);
                }
                _ => {}
            }
        }
        then.clean();
        self.add(then, Updater::Updating(Stage::Clean, update), What::Clean, steps);
    }

    fn retire(&self, update: Update, steps: &mut Steps) {
        let mut then = *self.state;
        then.incoming = then.incoming.with(update.old);
        if self.model.shape == Shape::Pair {
            then.lock = None;
        }
        then.updaters[usize::from(self.index)] = Updater::Idle;
        if self.model.fetch == Fetch::Coherent {
            // No CPU fetches the words from before a completed update any more.
            let values = then.values();
            then.cpus.iter_mut().for_each(|cpu| cpu.recent = values);
        }
        self.add(then, Updater::Idle, What::Retire(update.old), steps);
    }

    fn free(&self) -> impl Iterator<Item = Place> {
        let places = (0..self.model.scope.places).map(Place);
        places.filter(|place| self.state.memory.at(*place) == Code::Free)
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.model.makes(mistake)
    }

    fn call_membarrier(&self, then: &mut State) {
        then.call_membarrier(self.model.scope.cpus, self.agent());
    }

    fn have_synchronised(&self) -> bool {
        !self.state.cpus.iter().any(|cpu| cpu.owes.contains(self.agent()))
    }

    fn agent(&self) -> Agent {
        Agent::Updater(self.index)
    }

    fn add(&self, mut then: State, next: Updater, what: What, steps: &mut Steps) {
        then.updaters[usize::from(self.index)] = next;
        steps.add(Who::Updater(self.index), what, then);
    }
}

/// What updaters and the keeper require of all CPUs.
impl State {
    pub(crate) fn call_membarrier(&mut self, cpus: usize, agent: Agent) {
        self.cpus[..cpus].iter_mut().for_each(|cpu| cpu.owes.insert(agent));
    }

    pub(crate) fn take_cookie(&mut self, agent: Agent) {
        let inside = self.cpus.iter_mut().filter(|cpu| cpu.at != At::Outside);
        inside.for_each(|cpu| cpu.holds_up.insert(agent));
    }
}
