//! Open-coded iterators: objects in the stack that are made, asked for one element after the other, and ended
//! by calls alone.
//!
//! ```text
//!   new ----> next --> null: ended, ----> destroy
//!              ^  \--> an element: progress
//!              '------'
//! ```
//!
//! An iterator ends by itself after so many elements, so each element is progress, and a loop over one need
//! not be walked round by round ([`crate::rounds`]). It holds a reference that only its end gives back, so it
//! is ended on every path.

use crate::Code;
use crate::fault::{Fault, Step};
use crate::resources::Held;
use crate::stack::{Cell, STACK_BYTES};
use crate::state::State;
use crate::value::{Kind, Opaque, Value};
use crate::walk::Walker;
use skep_isa::{Reg, Size};

/// An iterator that a call was given.
#[derive(Clone, Copy)]
struct Found {
    frame: u8,
    start: u32,
    /// Its reference.
    id: u32,
    ended: bool,
}

impl Walker<'_> {
    /// `call` makes an iterator of type `ty` and so many 8-byte slots where `reg` points. The caller does the
    /// rest of the call: registers that it loses, its result.
    pub(crate) fn iterator_new(
        &mut self,
        state: &mut State,
        call: &str,
        reg: Reg,
        ty: u32,
        slots: u32,
    ) -> Step<()> {
        let (frame, start) = self.iterator_place(state, call, reg, slots)?;
        let id = self.acquire(state, Held::Object)?;
        let stack = &mut state.frames_mut()[usize::from(frame)].stack;
        let lives = |cell: &Cell| {
            u32::from(cell.start) < start + 8 * slots
                && start < cell.end()
                && matches!(cell.value.kind, Kind::Opaque { .. })
                && cell.value.reference != 0
        };
        if stack.cells.iter().any(lives) {
            let text = format!(
                "{call} expects stack in {reg} that nothing lives in, found an object that was not ended"
            );
            return Err(Fault::new(Code::Argument, text));
        }
        for slot in 0..slots {
            stack.write(start + 8 * slot, Size::B8, &part(ty, slot, id, false));
        }
        let function = state.frames()[usize::from(frame)].function;
        self.record.stack(function, STACK_BYTES - start);
        Ok(())
    }

    /// `call` asks the iterator where `reg` points for its next element: the path goes on with `element` in
    /// `r0`; another path goes on behind the call with null, the iterator at its end. Loses what a call loses.
    pub(crate) fn iterator_next(
        &mut self,
        state: &mut State,
        call: &str,
        reg: Reg,
        ty: u32,
        slots: u32,
        element: Value,
    ) -> Step<()> {
        let found = self.iterator(state, call, reg, ty, slots)?;
        crate::frames::lose_arguments(state, self.slot as u32);
        if found.ended {
            *state.reg_mut(Reg::R0) = Value::constant(0);
            return Ok(());
        }
        self.fork(state, 0, |other| {
            *other.reg_mut(Reg::R0) = Value::constant(0);
            let stack = &mut other.frames_mut()[usize::from(found.frame)].stack;
            for slot in 0..slots {
                stack.write(found.start + 8 * slot, Size::B8, &part(ty, slot, found.id, true));
            }
            true
        })?;
        let element = Value { reference: found.id, ..element };
        *state.reg_mut(Reg::R0) = element;
        Ok(())
    }

    /// `call` ends the iterator where `reg` points.
    pub(crate) fn iterator_destroy(
        &mut self,
        state: &mut State,
        call: &str,
        reg: Reg,
        ty: u32,
        slots: u32,
    ) -> Step<()> {
        let found = self.iterator(state, call, reg, ty, slots)?;
        self.release(state, found.id);
        Ok(())
    }

    /// Where in the stack `reg` points, if an iterator of so many slots has room there.
    fn iterator_place(&self, state: &State, call: &str, reg: Reg, slots: u32) -> Step<(u8, u32)> {
        let value = self.read(state, reg)?;
        let start = i64::from(value.offset) + i64::from(STACK_BYTES);
        let bytes = 8 * i64::from(slots);
        match value.kind {
            Kind::Stack { frame }
                if value.is_fixed()
                    && start % 8 == 0
                    && start >= 0
                    && start + bytes <= i64::from(STACK_BYTES) =>
            {
                Ok((frame, start as u32))
            }
            _ => {
                let text = format!(
                    "{call} expects {bytes} bytes of stack in {reg}, at a constant multiple of 8, found {value}"
                );
                Err(Fault::new(Code::Argument, text))
            }
        }
    }

    /// The iterator that `reg` points to.
    fn iterator(&self, state: &State, call: &str, reg: Reg, ty: u32, slots: u32) -> Step<Found> {
        let (frame, start) = self.iterator_place(state, call, reg, slots)?;
        let stack = &state.frames()[usize::from(frame)].stack;
        let mut found = None;
        for slot in 0..slots {
            let cell = stack.cells.iter().find(|cell| u32::from(cell.start) == start + 8 * slot);
            let part = cell.and_then(|cell| match cell.value.kind {
                Kind::Opaque { of: Opaque::Iterator { ty: of, ended } }
                    if of == ty && cell.value.offset == slot as i32 =>
                {
                    Some(Found { frame, start, id: cell.value.reference, ended })
                }
                _ => None,
            });
            match (part, found) {
                (Some(part), None) => found = Some(part),
                (Some(part), Some(Found { id, .. })) if part.id == id => {}
                _ => {
                    found = None;
                    break;
                }
            }
        }
        found.ok_or_else(|| {
            let text = format!(
                "{call} expects an iterator of its type in {reg} that was made before and not yet destroyed"
            );
            Fault::new(Code::Argument, text)
        })
    }
}

/// The value of one slot of an iterator.
fn part(ty: u32, slot: u32, id: u32, ended: bool) -> Value {
    let kind = Kind::Opaque { of: Opaque::Iterator { ty, ended } };
    Value { reference: id, ..Value::pointer(kind, slot as i32) }
}
