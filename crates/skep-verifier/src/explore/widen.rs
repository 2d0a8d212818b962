//! Widening: making a state know less, so that it describes later iterations as well.
//!
//! Numbers that differ from those of an earlier iteration become any number of 32 bits or, if that does not include
//! them, any number. So a loop that adds to a sum is done after two or three iterations. Numbers that are known to
//! decide something are left alone.

use crate::domain::needs::{Needs, touched};
use crate::domain::scalar::Scalar;
use crate::domain::stack::{Cell, STACK_BYTES, Stack};
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::explore::snapshot::{Snapshot, SnapshotArena, bits};
use skep_isa::Size;

impl SnapshotArena {
    /// Widens the numbers of `state` that `snapshot` does not include, but for those of `but`, and puts them into
    /// `widened`. Returns whether the state changed; it does not if the two have different calls.
    pub(crate) fn widen(
        &self,
        snapshot: &Snapshot,
        state: &mut State,
        but: &Needs,
        widened: &mut Needs,
    ) -> bool {
        let frames = &self.frames[snapshot.frames.range()];
        let same_calls = frames.len() == state.frames().len()
            && frames
                .iter()
                .zip(state.frames())
                .all(|(snapshot, frame)| snapshot.call_slot == frame.call_slot);
        if !same_calls {
            return false;
        }
        let mut constants = self.constants[snapshot.constants.range()].iter();
        let mut values = self.values[snapshot.values.range()].iter();
        let cells: Vec<Cell> = self.cells(snapshot).collect();
        let mut cells = &cells[..];
        for (at, (snapshot, frame)) in frames.iter().zip(state.frames_mut()).enumerate() {
            let (but, widened) = (&but.0[at], &mut widened.0[at]);
            let mut widen = |reg: usize, old: &Scalar| {
                if but.regs & 1 << reg == 0 && widen(&mut frame.regs.0[reg], old) {
                    widened.regs |= 1 << reg;
                }
            };
            for (reg, constant) in bits(snapshot.constants).zip(&mut constants) {
                widen(reg, &Scalar::constant(*constant));
            }
            for (reg, value) in bits(snapshot.values).zip(&mut values) {
                if value.is_scalar() {
                    widen(reg, &value.num);
                }
            }
            if let Some(stack) = self.stack(snapshot) {
                let (here, rest) = cells.split_at(snapshot.cells as usize);
                cells = rest;
                let zero = |at| stack.zero.has_all(at, at + 1);
                widened.stack = widen_stack(&mut frame.stack, here, zero, but.stack);
            }
        }
        *widened != Needs::NONE
    }

    /// How many registers of the innermost frame hold another constant than in `snapshot`.
    pub(crate) fn distance(&self, snapshot: &Snapshot, state: &State) -> usize {
        let Some(last) = self.frames[snapshot.frames.range()].last() else { return 0 };
        let constants = &self.constants[snapshot.constants.range()];
        let of_last = &constants[constants.len() - last.constants.count_ones() as usize..];
        let regs = &state.top().regs.0;
        let differs = |(reg, constant): &(usize, &u64)| regs[*reg].as_constant() != Some(**constant);
        bits(last.constants).zip(of_last).filter(differs).count()
    }
}

/// A wide range that includes both numbers.
fn wider(old: &Scalar, new: &Scalar) -> Scalar {
    let narrow = |num: &Scalar| num.umax <= u32::MAX.into();
    if narrow(old) && narrow(new) { Scalar::of_size(Size::B4) } else { Scalar::UNKNOWN }
}

fn widen(value: &mut Value, old: &Scalar) -> bool {
    if !value.is_scalar() || old.includes(&value.num) {
        return false;
    }
    let wide = wider(old, &value.num);
    if value.num == wide {
        return false;
    }
    *value = Value::scalar(wide);
    true
}

/// The same for the numbers in a stack, but for those in the units of `but`. Returns the units with widened numbers.
fn widen_stack(stack: &mut Stack, old: &[Cell], old_zero: impl Fn(u32) -> bool, but: u128) -> u128 {
    let mut widened = 0;
    let mut at = 0;
    while let Some(cell) = stack.cells.get(at).copied() {
        let (start, end) = (u32::from(cell.start), cell.end());
        let overlaps = |other: &&Cell| u32::from(other.start) < end && start < other.end();
        let before = match old.iter().find(overlaps) {
            _ if touched(start, end) & but != 0 => None,
            Some(other) if (other.start, other.size) == (cell.start, cell.size) => {
                other.value.is_scalar().then_some(other.value.num)
            }
            // Bytes of other cells keep no value.
            Some(other) => other.value.is_scalar().then_some(Scalar::UNKNOWN),
            None if (start..end).all(&old_zero) => Some(Scalar::constant(0)),
            None => None,
        };
        let crosses = before.is_some_and(|num| num == Scalar::UNKNOWN);
        match before {
            Some(num) if cell.value.is_scalar() && (crosses || !num.includes(&cell.value.num)) => {
                let wide = if crosses { Scalar::UNKNOWN } else { wider(&num, &cell.value.num) };
                let keeps = cell.size == 8 && wide != Scalar::UNKNOWN;
                if !keeps || wide != cell.value.num {
                    widened |= touched(start, end);
                }
                if keeps {
                    stack.cells[at].value = Value::scalar(wide).into();
                    at += 1;
                } else {
                    stack.remove_cell(at);
                }
            }
            _ => at += 1,
        }
    }
    // Zeroes become numbers.
    for other in old.iter().filter(|other| matches!(other.value.kind, Kind::Scalar)) {
        let (start, end) = (u32::from(other.start), other.end().min(STACK_BYTES));
        let units = touched(start, end);
        if units & but == 0
            && stack.zero.has_any(start, end)
            && !other.value.num.includes(&Scalar::constant(0))
        {
            widened |= units;
            stack.zero.remove(start, end);
        }
    }
    widened
}
