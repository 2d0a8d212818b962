//! Dynptrs: views of memory whose size is known only at run time.
//!
//! A `struct bpf_dynptr` lives in the program's stack, in two cells of 8 bytes that calls alone may touch:
//!
//! ```text
//!   [ Opaque, offset 0, id 5 ][ Opaque, offset 8, id 5 ]      reference: of the record, if it is over one
//!          |
//!          data: a slice, Memory with reference 5 (or that of the record): ends with the dynptr
//! ```
//!
//! A dynptr that holds a record may not be overwritten, since nothing could release the record then. Overwriting
//! another one, in part or whole, invalidates it and its slices.

use crate::domain::resources::Referent;
use crate::domain::stack::STACK_BYTES;
use crate::domain::state::State;
use crate::domain::value::{Kind, Opaque, StackBytes, Value, is_lent, range_of_slice};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{DynptrArg, DynptrKind};
use skep_isa::{Reg, Size};

/// Bytes in a `struct bpf_dynptr`.
const BYTES: u32 = 16;

/// A dynptr that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dynptr {
    /// Its identity: what its slices refer to.
    pub(crate) id: u32,
    /// The reference of its record, or that of a sample which was lent; 0 if it is neither.
    pub(crate) reference: u32,
    pub(crate) kind: DynptrKind,
    pub(crate) read_only: bool,
}

impl Dynptr {
    /// Whether it holds a record that must be given back.
    fn holds_record(&self) -> bool {
        self.reference != 0 && !is_lent(self.reference)
    }

    /// The reference that values derived from it carry.
    pub(crate) fn link(&self) -> u32 {
        if self.reference != 0 { self.reference } else { self.id }
    }
}

impl Transfer<'_> {
    /// Checks a dynptr argument of `who`: makes a dynptr, or finds the one it points to.
    pub(crate) fn dynptr_argument(
        &mut self,
        state: &mut State,
        who: &str,
        reg: Reg,
        value: &Value,
        wanted: DynptrArg,
    ) -> Checked<Dynptr> {
        match wanted {
            DynptrArg::Make(kind) => self.make_dynptr(state, who, reg, value, kind, false),
            DynptrArg::Any => self.dynptr_at(state, who, reg, value),
            DynptrArg::Writable => {
                let dynptr = self.dynptr_at(state, who, reg, value)?;
                if dynptr.read_only {
                    let text = format!("{who} expects a writable dynptr in {reg}");
                    return Err(Violation::new(Code::ReadOnly, text));
                }
                Ok(dynptr)
            }
            DynptrArg::Release => {
                let dynptr = self.dynptr_at(state, who, reg, value).map_err(|violation| {
                    violation.in_linux(format!("arg {} is an unacquired reference", reg.number()))
                })?;
                if !dynptr.holds_record() {
                    let text = format!("{who} expects a dynptr over a ring buffer's record in {reg}");
                    return Err(Violation::new(Code::Resource, text));
                }
                Ok(dynptr)
            }
        }
    }

    /// Makes a dynptr in the 16 bytes of stack at `value`.
    pub(crate) fn make_dynptr(
        &mut self,
        state: &mut State,
        who: &str,
        reg: Reg,
        value: &Value,
        kind: DynptrKind,
        read_only: bool,
    ) -> Checked<Dynptr> {
        let (frame, start) = self.opaque_place(state, who, reg, value, BYTES, "a dynptr")?;
        self.overwrite(state, frame, start, start + BYTES)?;
        let reference = if kind == DynptrKind::Ringbuf { self.acquire(state, Referent::Dynptr)? } else { 0 };
        let id = if reference != 0 { reference } else { self.new_id() };
        self.put_dynptr(state, (frame, start), Dynptr { id, reference, kind, read_only });
        Ok(Dynptr { id, reference, kind, read_only })
    }

    /// Makes a copy of the dynptr `of` in the 16 bytes of stack at `value`.
    pub(crate) fn clone_dynptr(
        &mut self,
        state: &mut State,
        who: &str,
        reg: Reg,
        value: &Value,
        of: Dynptr,
    ) -> Checked<Dynptr> {
        let (frame, start) = self.opaque_place(state, who, reg, value, BYTES, "a dynptr")?;
        self.overwrite(state, frame, start, start + BYTES)?;
        let copy = Dynptr { id: self.new_id(), ..of };
        self.put_dynptr(state, (frame, start), copy);
        Ok(copy)
    }

    /// A slice of a dynptr: its memory, or a copy of it in the stack, or null.
    pub(crate) fn slice(
        &mut self,
        dynptr: &Dynptr,
        bytes: u32,
        read_only: bool,
        copy: Option<StackBytes>,
    ) -> Value {
        self.copies_in_stack |= copy.is_some();
        let mut slice = self.named(Kind::Memory { bytes, read_only, maybe_null: true });
        slice.reference = dynptr.link();
        slice.range = range_of_slice(matches!(dynptr.kind, DynptrKind::Skb | DynptrKind::Xdp), copy);
        slice
    }

    /// Invalidates slices that may be copies in these stack bytes, which are written or end with their frame. Such a
    /// slice would be an alias for memory that the state describes.
    pub(crate) fn end_copies(&mut self, state: &mut State, frame: u8, start: u32, end: u32) {
        if !self.copies_in_stack {
            return;
        }
        self.forks.charge(state);
        self.end_values(state, |value| {
            value
                .copy_in_stack()
                .is_some_and(|copy| copy.frame == frame && copy.start < end && start < copy.end)
        });
    }

    fn put_dynptr(&self, state: &mut State, (frame, start): (u8, u32), dynptr: Dynptr) {
        let of = Opaque::Dynptr { of: dynptr.kind, read_only: dynptr.read_only };
        let stack = &mut state.frames_mut()[usize::from(frame)].stack;
        for part in [0, 8] {
            let mut value = Value::pointer(Kind::Opaque { of }, part);
            value.id = dynptr.id;
            value.reference = dynptr.reference;
            stack.write(start + part as u32, Size::B8, &value);
        }
    }

    /// The dynptr that `value` points to.
    pub(crate) fn dynptr_at(&mut self, state: &State, who: &str, reg: Reg, value: &Value) -> Checked<Dynptr> {
        // The dynptr lent to a callback is not in the program's stack.
        if let Kind::Opaque { of: Opaque::Dynptr { of: kind, read_only } } = value.kind {
            return Ok(Dynptr { id: value.id, reference: value.reference, kind, read_only });
        }
        let (frame, start) = self.opaque_place(state, who, reg, value, BYTES, "a dynptr")?;
        let stack = &state.frames()[usize::from(frame)].stack;
        let part = |offset: i32| {
            let at = start + offset as u32;
            stack.cell_at(at).filter(|cell| cell.value.offset == offset)
        };
        if let (Some(first), Some(second)) = (part(0), part(8))
            && let Kind::Opaque { of: Opaque::Dynptr { of: kind, read_only } } = first.value.kind
            && (second.value.kind, second.value.id) == (first.value.kind, first.value.id)
        {
            let Value { id, reference, .. } = *first.value;
            return Ok(Dynptr { id, reference, kind, read_only });
        }
        let text = format!("{who} expects an initialised dynptr in {reg}, found {value}, which holds none");
        Err(Violation::new(Code::Argument, text)
            .suggest("create it first, and check the result")
            .in_linux(format!("Expected an initialized dynptr as arg #{}", reg.number() - 1)))
    }

    /// The place in the program's stack of an object of that many bytes that only calls touch.
    pub(crate) fn opaque_place(
        &mut self,
        state: &State,
        who: &str,
        reg: Reg,
        value: &Value,
        bytes: u32,
        what: &str,
    ) -> Checked<(u8, u32)> {
        let Kind::Stack { frame } = value.kind else {
            let text = format!("{who} expects {what} in the stack in {reg}, found {value}");
            return Err(Violation::new(Code::Argument, text));
        };
        let start = i64::from(value.offset) + i64::from(STACK_BYTES);
        let inside = start >= 0 && start + i64::from(bytes) <= i64::from(STACK_BYTES);
        if !value.is_fixed() || start % 8 != 0 || !inside {
            let text = format!(
                "{who} expects {what} at a constant offset in the stack that is a multiple of 8 and at most -{bytes} in {reg}, \
                 found {value}"
            );
            return Err(Violation::new(Code::Argument, text));
        }
        let function = state.frames()[usize::from(frame)].function;
        self.record.stack(function, STACK_BYTES - start as u32);
        Ok((frame, start as u32))
    }

    /// Before an overwrite of stack bytes: invalidates the objects of calls there, or refuses.
    pub(crate) fn overwrite(&mut self, state: &mut State, frame: u8, start: u32, end: u32) -> Checked<()> {
        self.end_copies(state, frame, start, end);
        let at = usize::from(frame);
        // Fast path: most stores overwrite no pointers.
        if !state.frames()[at].stack.pointers.has_any(start, end) {
            return Ok(());
        }
        while let Some(cell) = state.frames()[at].stack.opaque_in(start, end) {
            let value = *cell.value;
            let where_ = i64::from(cell.start) - i64::from(value.offset) - i64::from(STACK_BYTES);
            let Kind::Opaque { of: Opaque::Dynptr { .. } } = value.kind else {
                let text = format!(
                    "the iterator at r10{where_:+} would be overwritten: only its own calls may touch it"
                );
                return Err(Violation::new(Code::Resource, text));
            };
            let copies = |value: &Value| {
                matches!(value.kind, Kind::Opaque { of: Opaque::Dynptr { .. } }) && value.offset == 0
            };
            if value.reference != 0 && !is_lent(value.reference) {
                let cells = state.frames().iter().flat_map(|frame| &frame.stack.cells);
                let others = cells
                    .filter(|cell| copies(&cell.value) && cell.value.reference == value.reference)
                    .count();
                if others < 2 {
                    let text = format!(
                        "the dynptr at r10{where_:+} holds a record that must be released: it may not be overwritten"
                    );
                    return Err(Violation::new(Code::Resource, text)
                        .suggest("submit or discard the dynptr before reusing its stack slot")
                        .in_linux("cannot overwrite referenced dynptr"));
                }
            }
            self.forks.charge(state);
            let id = value.id;
            let opaque = |value: &Value| matches!(value.kind, Kind::Opaque { .. });
            self.end_values(state, |value| {
                (opaque(value) && value.id == id) || (!opaque(value) && value.reference == id)
            });
        }
        Ok(())
    }
}
