//! A reader: enters a section, reaches the site, leaves or reaches it again (in a subprogram that is called twice),
//! and so on without end.
//!
//! ```text
//!    a site and its stubs
//!       Outside ──> Site ── nop ────────────────────────────────────────────────> Behind ──> Outside, Site
//!                     └──── jmp p ──> Stub(p) ── unwind ──> Unwound(p) ── jmp ──> Target ──> Outside, Site
//!                                         └───── no tail call is left ──────────> Behind
//!    a pair
//!       Outside ──> Site ── jmp over ───────────────────────────────────────────> Behind
//!                     └──── nop ────> Unwinding ─ unwind ──> Tail ── jmp ───────> Target
//!                                                              └──── nop          the forbidden state
//! ```

use crate::check::Violation;
use crate::machine::{At, Code, Place, Spot, Word};
use crate::set::Set;
use crate::state::{Model, Shape, State, Version};
use crate::steps::{Steps, What, Who};

pub(crate) fn steps(model: &Model, state: &State, steps: &mut Steps) {
    for index in 0..model.scope.cpus {
        let cpu = Reader { model, state, index };
        cpu.step(steps);
        if !state.cpus[index].owes.is_empty() {
            let mut then = *state;
            then.synchronise(index);
            steps.add(Who::Reader(index), What::Synchronise, then);
        }
    }
}

struct Reader<'a> {
    model: &'a Model,
    state: &'a State,
    index: usize,
}

impl Reader<'_> {
    fn step(&self, steps: &mut Steps) {
        let who = Who::Reader(self.index);
        match self.state.cpus[self.index].at {
            At::Outside => steps.add(who, What::Enter, self.before_site()),
            At::Site => self.fetch(Spot::Site, steps),
            At::Unwinding => steps.add(who, What::Unwind, self.moved(At::Tail)),
            At::Tail => self.fetch(Spot::Tail, steps),
            At::Stub(place) => self.begin_stub(place, steps),
            At::Unwound(place) => self.end_stub(place, steps),
            At::Target(_) | At::Behind => {
                let mut then = self.moved(At::Outside);
                then.cpus[self.index].holds_up = Set::EMPTY;
                steps.add(who, What::Leave, then);
                steps.add(who, What::ComeAgain, self.before_site());
            }
        }
    }

    fn before_site(&self) -> State {
        let mut then = self.moved(At::Site);
        then.cpus[self.index].explains = then.cpus[self.index].recent;
        then
    }

    /// Fetches any word that can be fetched.
    fn fetch(&self, spot: Spot, steps: &mut Steps) {
        let now = self.state.memory.words[spot as usize].now;
        for word in self.state.cpus[self.index].may_fetch[spot as usize].iter() {
            let then = match (spot, word, self.model.shape) {
                (Spot::Site, Word::Nop, Shape::Pair) => Ok(self.moved(At::Unwinding)),
                (Spot::Site, Word::Nop, Shape::SiteAndStub) | (_, Word::Over, _) => self.fall_through(),
                (Spot::Site, Word::Jump(place), _) => Ok(self.moved(At::Stub(place))),
                (Spot::Tail, Word::Nop, _) => Err(Violation::UnwoundWithoutJump),
                (Spot::Tail, Word::Jump(place), _) => self.arrive(place),
            };
            let what = What::Fetch { spot, word, is_stale: word != now };
            self.add(what, then, steps);
        }
    }

    fn begin_stub(&self, place: Place, steps: &mut Steps) {
        let then = self.execute(place).and_then(|code| match code {
            Code::HalfStub | Code::Stub(_) => Ok(self.moved(At::Unwound(place))),
            // `execute` detects traps; here a program has taken the stub's place.
            _ => Err(Violation::RanReclaimed),
        });
        // Before it unwinds, a stub checks the count and may jump to after the site; then nothing of it is left to
        // check.
        if then.is_ok() {
            steps.add(Who::Reader(self.index), What::FindCountExhausted(place), self.moved(At::Behind));
        }
        self.add(What::Execute(place), then, steps);
    }

    fn end_stub(&self, place: Place, steps: &mut Steps) {
        let (to, then) = match self.execute(place) {
            Ok(Code::Stub(to)) => (to, self.arrive(to)),
            Ok(_) => (place, Err(Violation::UnwoundWithoutJump)),
            Err(violation) => (place, Err(violation)),
        };
        self.add(What::Jump { from: place, to }, then, steps);
    }

    /// The first instruction of the target: the slot's content must explain what it will return.
    fn arrive(&self, place: Place) -> Result<State, Violation> {
        match self.execute(place)? {
            Code::Program(version) => self.decided(Some(version), At::Target(place)),
            _ => Err(Violation::RanReclaimed),
        }
    }

    fn fall_through(&self) -> Result<State, Violation> {
        self.decided(None, At::Behind)
    }

    fn decided(&self, value: Option<Version>, at: At) -> Result<State, Violation> {
        if !self.state.cpus[self.index].explains.contains(value) {
            return Err(Violation::RanUnexplained);
        }
        Ok(self.moved(at))
    }

    /// What this CPU executes in code that is not the caller's.
    fn execute(&self, place: Place) -> Result<Code, Violation> {
        let has_leftovers = self.state.cpus[self.index].leftovers.contains(place);
        match self.state.memory.at(place) {
            Code::Free => Err(Violation::RanReclaimed),
            _ if has_leftovers => Err(Violation::RanLeftovers),
            Code::Blank => Err(Violation::RanUnwritten),
            code => Ok(code),
        }
    }

    fn moved(&self, at: At) -> State {
        let mut then = *self.state;
        let cpu = &mut then.cpus[self.index];
        cpu.at = at;
        if at.is_decided() {
            cpu.explains = Set::EMPTY;
        }
        then
    }

    fn add(&self, what: What, then: Result<State, Violation>, steps: &mut Steps) {
        match then {
            Ok(then) => steps.add(Who::Reader(self.index), what, then),
            Err(violation) => steps.add_wrong(Who::Reader(self.index), what, violation),
        }
    }
}
