//! Open-coded iterators: objects in the stack that only calls make, advance and destroy.
//!
//! ```text
//!   new ----> next --> null: ended, ----> destroy
//!              ^  \--> an element: progress
//!              '------'
//! ```
//!
//! An iterator has a bounded number of elements, so each element is progress, and a loop over one need not be walked
//! iteration by iteration ([`crate::domain::loops`]). It holds a reference that only `destroy` releases, so every path
//! destroys it.

use crate::domain::loops::Construct;
use crate::domain::resources::{Guard, Referent, Section};
use crate::domain::state::State;
use crate::domain::value::{Kind, Needs, Opaque, Trust, Value};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_isa::{Reg, Size};

/// An iterator that a call was given.
#[derive(Clone, Copy)]
struct Found {
    frame: u8,
    start: u32,
    /// Its reference.
    id: u32,
    ended: bool,
    needs: Needs,
}

impl Transfer<'_> {
    /// `call` makes an iterator of type `ty` and `slots` 8-byte slots where `reg` points. The caller of this function
    /// clobbers the registers and sets the result.
    pub(crate) fn iterator_new(
        &mut self,
        state: &mut State,
        call: &str,
        reg: Reg,
        (ty, slots): (u32, u32),
        needs: Needs,
    ) -> Checked<()> {
        let value = self.read(state, reg)?;
        let (frame, start) = self.opaque_place(state, call, reg, &value, 8 * slots, "an iterator")?;
        self.overwrite(state, frame, start, start + 8 * slots)?;
        let id = self.acquire(state, Referent::Iterator)?;
        let stack = &mut state.frames_mut()[usize::from(frame)].stack;
        for slot in 0..slots {
            stack.write(start + 8 * slot, Size::B8, &part(ty, slot, id, (false, needs)));
        }
        let of = Construct::Iterator { reference: id, frame };
        state.loops.enter(of, self.new_id());
        Ok(())
    }

    /// `call` asks the iterator where `reg` points for its next element. The path goes on with null and an ended
    /// iterator; a fork goes on with `element` in `r0`. Clobbers the argument registers.
    pub(crate) fn iterator_next(
        &mut self,
        state: &mut State,
        call: &str,
        reg: Reg,
        ty: u32,
        slots: u32,
        element: Value,
    ) -> Checked<()> {
        let found = self.iterator(state, call, reg, ty, slots)?;
        crate::step::frames::clobber_arguments(state, self.slot as u32);
        if found.ended {
            *state.reg_mut(Reg::R0) = Value::constant(0);
            return Ok(());
        }
        let mut goes_on = self.forks.copy(state);
        let of = Construct::Iterator { reference: found.id, frame: found.frame };
        goes_on.loops.advance(of, self.new_id());
        *goes_on.reg_mut(Reg::R0) = Value { reference: found.id, ..element };
        self.forks.put_aside(goes_on, self.slot + 1);
        self.forks.stay(true);
        *state.reg_mut(Reg::R0) = Value::constant(0);
        let stack = &mut state.frames_mut()[usize::from(found.frame)].stack;
        for slot in 0..slots {
            stack.write(found.start + 8 * slot, Size::B8, &part(ty, slot, found.id, (true, found.needs)));
        }
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
    ) -> Checked<()> {
        let found = self.iterator(state, call, reg, ty, slots)?;
        // Its elements end with it.
        self.distrust(state, found.id);
        self.release(state, call, found.id)?;
        state.loops.leave(Construct::Iterator { reference: found.id, frame: found.frame });
        Ok(())
    }

    /// Objects with that reference end. They can still be looked at, since their loads are probes, but no call takes
    /// them.
    pub(crate) fn distrust(&self, state: &mut State, reference: u32) {
        state.change_values(
            |value| value.reference == reference && matches!(value.kind, Kind::Object { .. }),
            |value| {
                if let Kind::Object { trust, .. } = &mut value.kind {
                    *trust = Trust::Untrusted;
                }
                value.reference = 0;
            },
        );
    }

    /// The iterator that `reg` points to.
    fn iterator(&mut self, state: &State, call: &str, reg: Reg, ty: u32, slots: u32) -> Checked<Found> {
        let value = self.read(state, reg)?;
        let (frame, start) = self.opaque_place(state, call, reg, &value, 8 * slots, "an iterator")?;
        let stack = &state.frames()[usize::from(frame)].stack;
        let mut found = None;
        for slot in 0..slots {
            let cell = stack.cell_at(start + 8 * slot);
            let part = cell.and_then(|cell| match cell.value.kind {
                Kind::Opaque { of: Opaque::Iterator { ty: of, ended, needs } }
                    if of == ty && cell.value.offset == 8 * slot as i32 =>
                {
                    Some(Found { frame, start, id: cell.value.reference, ended, needs })
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
        if let Some(Found { needs: Needs::LeftSection, .. }) = found {
            let text = format!(
                "{call} is given an iterator in {reg}, but the read section that created it has ended"
            );
            return Err(Violation::new(Code::Resource, text)
                .suggest("create, use and destroy the iterator in one read section")
                .outside_of(Guard::Section(Section::Read)));
        }
        found.ok_or_else(|| {
            let text = format!(
                "{call} expects an iterator of its type in {reg} that was made before and not yet destroyed"
            );
            // `bpf_iter_num_next` is about an `iter_num`.
            let name = call.rsplit_once('_').and_then(|(name, _)| name.strip_prefix("bpf_"));
            let words = format!(
                "expected an initialized {} as arg #{}",
                name.unwrap_or("iter"),
                reg.number().saturating_sub(1)
            );
            Violation::new(Code::Argument, text).in_linux(words)
        })
    }
}

/// The value of one slot of an iterator.
fn part(ty: u32, slot: u32, id: u32, (ended, needs): (bool, Needs)) -> Value {
    let kind = Kind::Opaque { of: Opaque::Iterator { ty, ended, needs } };
    Value { reference: id, ..Value::pointer(kind, 8 * slot as i32) }
}
