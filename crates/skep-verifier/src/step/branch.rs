//! Jumps: which ways are open, and how each narrows the compared values.

use crate::domain::comparison::{assume, assume_not, rules_out, without_halves};
use crate::domain::loops::Construct;
use crate::domain::needs::{FrameNeeds, touched};
use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::value::Value;
use crate::program::cfg::target;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::notes::Note;
use crate::step::{Next, Transfer};
use skep_isa::{Cond, Operand, Reg, Width, semantics};

/// Two numbers narrowed by a comparison; `None` if it is impossible.
type Assumed = Option<(Scalar, Scalar)>;

impl Transfer<'_> {
    pub(crate) fn jump(&self, offset: i32) -> Checked<Next> {
        match target(self.slot, offset) {
            Some(to) => Ok(Next::To(to)),
            None => Err(Violation::new(Code::Structure, "the jump leads out of the program")),
        }
    }

    pub(crate) fn branch(
        &mut self,
        state: &mut State,
        width: Width,
        cond: Cond,
        dst: Reg,
        src: Operand,
        offset: i16,
    ) -> Checked<Next> {
        // Fast path: most loops count in constants.
        if let Some(a) = state.reg(dst).as_constant()
            && let Some(b) = match src {
                Operand::Imm(imm) => Some(i64::from(imm) as u64),
                Operand::Reg(src) => state.reg(src).as_constant(),
            }
        {
            let taken = semantics::holds(width, cond, a, b);
            self.notes.relies = true;
            return self.turn((taken, !taken), offset);
        }
        let a = *self.look(state, dst)?;
        let b = self.operand(state, src)?;
        if !a.is_scalar() || !b.is_scalar() {
            self.notes.relies = true;
            let test = self.compare_pointers(width, cond, dst, src, &a, &b)?;
            if test.ways.0 && test.ways.1 {
                self.fork(state, offset, |other| {
                    test.taken.apply(other);
                    true
                })?;
            }
            if test.ways.1 {
                test.not_taken.apply(state);
            }
            return self.turn(test.ways, offset);
        }
        let (taken, not_taken) = self.assumed(cond, width, &a.num, &b.num);
        match (taken, not_taken) {
            (Some(taken), Some(not_taken)) => {
                if a.id != 0 || b.id != 0 {
                    self.note_tied(state, &a, &b);
                }
                // What is linked to an operand may decide as well.
                let sees = self.env.config.abilities.contradictions;
                let narrowed = |state: &mut State, (a_num, b_num): &(Scalar, Scalar)| {
                    narrow(state, dst, &a, a_num, src, &b, b_num, sees) || !sees
                };
                let open = self.fork(state, offset, |other| narrowed(other, &taken))?;
                self.notes.relies = !open;
                if narrowed(state, &not_taken) {
                    self.turn((true, true), offset)
                } else {
                    self.notes.relies = true;
                    Ok(Next::End)
                }
            }
            (taken, not_taken) => {
                self.notes.relies = true;
                match (taken, not_taken) {
                    (Some(_), _) => self.turn((true, false), offset),
                    (_, Some(_)) => self.turn((false, true), offset),
                    // No number satisfies the state: no run gets here.
                    (None, None) => Ok(Next::End),
                }
            }
        }
    }

    /// What is known of two numbers if the comparison holds, and if it does not, as far as abilities go.
    fn assumed(&self, cond: Cond, width: Width, a: &Scalar, b: &Scalar) -> (Assumed, Assumed) {
        let taken = assume(cond, width, a, b);
        let not_taken = assume_not(cond, width, a, b);
        let abilities = self.env.config.abilities;
        let nothing = Some((*a, *b));
        // Where ranges contradict each other, the numbers may be any.
        let seen = |way: Assumed, negation: bool| match way {
            _ if abilities.contradictions => way,
            Some(mut found) => {
                without_halves(cond, negation, width, (a, b), &mut found);
                Some(found)
            }
            None if rules_out(cond, negation, width, a, b) => None,
            None => {
                let any = |number: &Scalar| if number.is_constant() { *number } else { Scalar::UNKNOWN };
                Some((any(a), any(b)))
            }
        };
        let (taken, not_taken) = (seen(taken, false), seen(not_taken, true));
        let (a_varies, b_varies) = (!a.is_constant(), !b.is_constant());
        match cond {
            // Nothing is narrowed or decided.
            _ if a_varies && b_varies && !abilities.compared_numbers => (nothing, nothing),
            // Decided only by a constant on the right. On the impossible way, the number gets the constant's bounds.
            _ if !a_varies && b_varies && !abilities.compared_numbers => {
                (taken.or(Some((*a, *a))), not_taken.or(Some((*a, *a))))
            }
            Cond::Eq | Cond::Ne if (a_varies || b_varies) && !abilities.unequal_numbers => match cond {
                Cond::Eq => (taken.or(nothing), nothing),
                _ => (nothing, not_taken.or(nothing)),
            },
            _ => (taken, not_taken),
        }
    }

    /// Notes which numbers are linked to the operands of a branch.
    fn note_tied(&mut self, state: &State, a: &Value, b: &Value) {
        let tied =
            |value: &Value| value.is_scalar() && value.id != 0 && (value.id == a.id || value.id == b.id);
        for (at, frame) in state.frames().iter().enumerate() {
            let mut to = FrameNeeds::default();
            for (reg, value) in frame.regs.0.iter().enumerate() {
                to.regs |= u16::from(tied(value)) << reg;
            }
            for cell in frame.stack.cells.iter().filter(|cell| tied(&cell.value)) {
                to.stack |= touched(cell.start.into(), cell.end());
            }
            if to != FrameNeeds::default() {
                self.notes.add(Note::tied(at as u8, &to));
            }
        }
    }

    /// Goes on after a conditional jump: not taken if that is possible.
    fn turn(&mut self, ways: (bool, bool), offset: i16) -> Checked<Next> {
        self.record.branch(self.slot, !ways.1);
        if !ways.1 {
            return self.jump(offset.into());
        }
        if ways.0 {
            self.forks.stay(false);
        }
        Ok(Next::To(self.slot + 1))
    }

    /// The program may go on, as often as the host lets it, or jump, which is walked first.
    pub(crate) fn may_goto(&mut self, state: &mut State, offset: i16) -> Checked<Next> {
        let mut goes_on = self.forks.copy(state);
        let of = Construct::MayGoto { frame: state.top_index() };
        goes_on.loops.advance(of, self.new_id());
        self.record.branch(self.slot, true);
        self.record.branch(self.slot, false);
        self.forks.put_aside(goes_on, self.slot + 1);
        self.forks.stay(true);
        self.jump(offset.into())
    }

    /// Forks off the taken way of a branch. `prepare` narrows its state, and returns false if that way is impossible;
    /// then it is not forked off, and the result is false too.
    fn fork(
        &mut self,
        state: &State,
        offset: i16,
        prepare: impl FnOnce(&mut State) -> bool,
    ) -> Checked<bool> {
        let mut other = self.forks.copy(state);
        if !prepare(&mut other) {
            self.forks.recycle(other);
            return Ok(false);
        }
        let Some(slot) = target(self.slot, offset.into()) else {
            return Err(Violation::new(Code::Structure, "the jump leads out of the program"));
        };
        self.record.branch(self.slot, true);
        self.forks.put_aside(other, slot);
        Ok(true)
    }
}

/// Narrows the compared registers, and all values linked to them. False if the comparison is impossible. `sees`:
/// whether numbers that contradict each other make it impossible; the later one counts otherwise.
#[allow(clippy::too_many_arguments)] // both operands, each with its register, value and number
fn narrow(
    state: &mut State,
    dst: Reg,
    a: &Value,
    a_num: &Scalar,
    src: Operand,
    b: &Value,
    b_num: &Scalar,
    sees: bool,
) -> bool {
    let mut possible = true;
    if *a_num != a.num {
        state.reg_mut(dst).num = *a_num;
        if a.id != 0 {
            possible &= state.narrow_linked(a.id, a.offset, a_num);
        }
    }
    if let Operand::Reg(src) = src
        && *b_num != b.num
    {
        match state.reg(src).num.meet(b_num) {
            Some(num) => state.reg_mut(src).num = num,
            None if sees => return false,
            None => state.reg_mut(src).num = *b_num,
        }
        if b.id != 0 {
            possible &= state.narrow_linked(b.id, b.offset, b_num);
        }
    }
    possible
}
