//! Observers of a walk, which are told what happens step by step.
//!
//! A walk without an observer pays one test of a flag for each instruction. The observers are the log
//! ([`crate::explain::log`]) and the recorder of one path ([`crate::explain::replay`]).

use crate::domain::resources::Guard;
use crate::domain::stack::Stack;
use crate::domain::state::State;
use crate::domain::value::Value;
use crate::explore::paths::Turn;
use crate::program::violation::Violation;
use skep_isa::Reg;

/// The events of a walk.
pub(crate) trait Observer {
    /// A walk begins at the start of a function: the program, or what the host calls by itself.
    fn start(&mut self);
    /// The instruction at `slot` is about to be walked with that state.
    fn step(&mut self, slot: usize, state: &State);
    /// The path takes this way of a branch; the other is open too.
    fn turn(&mut self, turn: Turn);
    /// The path that was put aside at `turn` goes on at `slot`; it shares `shared` turns with the last one.
    fn resume(&mut self, shared: usize, turn: Turn, slot: usize);
    /// The path ends at `slot`, where a finished state subsumes it.
    fn subsumed(&mut self, slot: usize);
    /// The state at `slot` is kept.
    fn kept(&mut self, slot: usize);
    /// The path goes on with a widened state ([`crate::explore::speculation`]); `open` speculations are open now.
    fn speculate(&mut self, open: usize);
    /// The path has a violation. If speculations are open, the last is rolled back, and the path goes on from there;
    /// else the program is refused.
    fn roll_back(&mut self, open: usize, violation: &Violation);
}

/// One thing that an instruction changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The register of that frame is this now.
    Reg { frame: u8, reg: Reg, value: Value },
    /// Some of the eight bytes of that frame's stack, counted from its bottom, changed.
    Stack { frame: u8, start: u32 },
    /// The path is no longer in this.
    Left(Guard),
}

/// Finds what differs in `after`: in frames of both, the changes; in a frame of `after` alone, its arguments. Stacks
/// are compared if `stacks` says so.
pub(crate) fn changes(before: &State, after: &State, stacks: bool, found: &mut Vec<Change>) {
    found.extend(before.resources.left(&after.resources).map(Change::Left));
    for (frame, now) in after.frames().iter().enumerate() {
        let then = before.frames().get(frame);
        let frame = frame as u8;
        for reg in &Reg::ALL[..10] {
            let value = now.regs[*reg];
            if then.map_or(value.is_made(), |then| then.regs[*reg] != value) {
                found.push(Change::Reg { frame, reg: *reg, value });
            }
        }
        let Some(then) = then.filter(|_| stacks) else { continue };
        for start in (0..crate::domain::stack::STACK_BYTES).step_by(8) {
            if !same(&then.stack, &now.stack, start) {
                found.push(Change::Stack { frame, start });
            }
        }
    }
}

/// Whether the eight bytes from `start` hold the same in both.
fn same(one: &Stack, other: &Stack, start: u32) -> bool {
    let end = start + 8;
    let bytes = |stack: &Stack| {
        let word = |set: &crate::domain::bytes::ByteSet| set.byte((start / 8) as usize);
        (word(&stack.init), word(&stack.zero), word(&stack.pointers))
    };
    if bytes(one) != bytes(other) {
        return false;
    }
    let within = |stack: &Stack| {
        let cells = stack.cells.iter().filter(|cell| u32::from(cell.start) < end && start < cell.end());
        let mut cells: Vec<_> = cells.map(|cell| (cell.start, cell.size, *cell.value)).collect();
        cells.sort_unstable_by_key(|(start, ..)| *start);
        cells
    };
    if one.cells.is_empty() && other.cells.is_empty() {
        return true;
    }
    within(one) == within(other)
}
