//! Generalizing: making a state forget what explored states like it did not need.
//!
//! Flags that decide something soon keep many paths apart: ten of them make a thousand states where paths meet, though
//! all of these are safe for one reason. So where some explored states differ from a new one in numbers alone, the walk
//! *speculates* that these numbers do not matter ([`crate::explore::speculation`]). One explored state is the model:
//! the numbers that it needed and that are equal in both stay, all others become unknown. The general state then
//! subsumes most of those that come later.
//!
//! ```text
//!   explored:  flags = 0, port in 0..9, needs: flags, port
//!   explored:  flags = 1, port in 0..9, needs: flags, port
//!   new:       flags = 2, port = 7, retries = 3      ->  general: port in 0..9
//! ```
//!
//! A general state takes ways that no run takes, and it is walked instead of the exact one. That is a bad bargain if
//! one of these leads into a loop that counts with a number that became unknown. So if a path comes back to the slot
//! below a general state, and numbers that were forgotten there are known again, they are the loop's, and the
//! speculation has failed for them. And the walk may spend no more than so much below a general state before it gives
//! up.

use crate::domain::needs::{FrameNeeds, Needs, touched};
use crate::domain::scalar::Scalar;
use crate::domain::stack::{Cell, Stack};
use crate::domain::state::State;
use crate::domain::value::Value;
use crate::explore::snapshot::{Snapshot, SnapshotArena, StackSnapshot, bits};

impl SnapshotArena {
    /// Generalizes the numbers of `state`, but for those of `but`, after the model of a settled snapshot that differs
    /// from it in numbers alone. Puts those that changed into `changed`, and returns whether there are any.
    pub(crate) fn generalize(
        &self,
        model: &Snapshot,
        state: &mut State,
        but: &Needs,
        changed: &mut Needs,
    ) -> bool {
        let Some(needs) = self.settled(model) else { return false };
        let frames = &self.frames[model.frames.range()];
        let mut constants = self.constants[model.constants.range()].iter();
        let mut values = self.values[model.values.range()].iter();
        let cells: Vec<Cell> = self.cells(model).collect();
        let mut cells = &cells[..];
        for (at, (model, frame)) in frames.iter().zip(state.frames_mut()).enumerate() {
            let (needs, but, changed) = (&needs[at], &but.0[at], &mut changed.0[at]);
            let mut forget = |reg: usize, known: &Scalar| {
                let (value, bit) = (&mut frame.regs.0[reg], 1 << reg);
                let general = if needs.regs & bit == 0 { Scalar::UNKNOWN } else { either(known, &value.num) };
                if value.is_scalar() && but.regs & bit == 0 && value.num != general {
                    *value = Value::scalar(general);
                    changed.regs |= bit;
                }
            };
            for (reg, constant) in bits(model.constants).zip(&mut constants) {
                forget(reg, &Scalar::constant(*constant));
            }
            for (reg, value) in bits(model.values).zip(&mut values) {
                forget(reg, &value.num);
            }
            for reg in bits(model.numbers) {
                forget(reg, &Scalar::UNKNOWN);
            }
            if let Some(stack) = self.stack(model) {
                let (here, rest) = cells.split_at(model.cells as usize);
                cells = rest;
                changed.stack = generalize_stack(&mut frame.stack, stack, here, needs, but);
            }
        }
        *changed != Needs::NONE
    }
}

/// A number that includes both.
fn either(known: &Scalar, number: &Scalar) -> Scalar {
    if known.includes(number) { *known } else { known.common_bits(number) }
}

/// The same for a stack. Returns the units of which something was forgotten.
fn generalize_stack(
    stack: &mut Stack,
    model: &StackSnapshot,
    cells: &[Cell],
    needs: &FrameNeeds,
    but: &FrameNeeds,
) -> u128 {
    let mut changed = 0;
    let mut at = 0;
    while let Some(cell) = stack.cells.get(at).copied() {
        let (start, end) = (u32::from(cell.start), cell.end());
        let units = touched(start, end);
        if !cell.value.is_scalar() || units & but.stack != 0 {
            at += 1;
            continue;
        }
        let same = |other: &&Cell| (other.start, other.size) == (cell.start, cell.size);
        let known = match cells.iter().find(same) {
            _ if units & needs.stack == 0 => Scalar::UNKNOWN,
            Some(other) if other.value.is_scalar() => other.value.num,
            None if model.zero.has_all(start, end) => Scalar::constant(0),
            _ => Scalar::UNKNOWN,
        };
        let general = either(&known, &cell.value.num);
        if general == cell.value.num {
            at += 1;
            continue;
        }
        changed |= units;
        // A cell of fewer bytes would have to hold fewer bits.
        if cell.size == 8 && general != Scalar::UNKNOWN {
            stack.cells[at].value = Value::scalar(general).into();
            at += 1;
        } else {
            stack.remove_cell(at);
        }
    }
    changed | stack.forget_zeroes(&model.zero, needs.stack, but.stack)
}
