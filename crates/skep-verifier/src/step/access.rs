//! Loads, stores and atomics.

use crate::domain::scalar::Scalar;
use crate::domain::stack::{Found, STACK_BYTES, Stack};
use crate::domain::state::{Frame, State};
use crate::domain::tnum::Tnum;
use crate::domain::value::{Kind, Trust, Value};
use crate::domain::words;
use crate::program::config::{Spills, Unwritten};
use crate::program::facts::Place;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::notes::Note;
use crate::step::region::{Intent, Region};
use skep_abi::{ContextField, FieldKind};
use skep_isa::{AtomicOp, Insn, Operand, Reg, Size};

impl Transfer<'_> {
    pub(crate) fn load(
        &mut self,
        state: &mut State,
        size: Size,
        signed: bool,
        dst: Reg,
        base: Reg,
        offset: i16,
    ) -> Checked<()> {
        let pointer = self.base(state, base, offset, size)?;
        if let Some((frame, start)) = self.fixed_stack(state, pointer, offset, size)
            && !signed
            && let Some(cell) = state.frames()[usize::from(frame)].stack.whole_cell(start, size)
            && !matches!(cell.value.kind, Kind::Opaque { .. })
        {
            // Fast path: reloads a stored value.
            let value = *cell.value;
            self.record.memory(self.slot)?;
            let end = start + size.bytes();
            self.notes.add(Note::Reads { frame, start, end });
            self.note_reload(&value, size);
            return self.write(state, dst, value);
        }
        let pointer = *pointer;
        if let Some(value) = self.load_of_host(state, base, &pointer, offset, size, signed)? {
            return self.write(state, dst, value);
        }
        let region = self.region(state, base, &pointer, offset.into(), size.bytes(), Intent::Read)?;
        let value = match region {
            Region::Stack { frame, first, last } => {
                self.notes.add(Note::Reads { frame, start: first, end: last + size.bytes() });
                let value = self.load_stack(state, frame, first, last, size)?;
                self.note_reload(&value, size);
                value
            }
            Region::Field { field, inside } => {
                self.rewrite(&pointer, field, inside, size)?;
                match field.kind {
                    FieldKind::Scalar => Value::scalar(Scalar::of_size(size)),
                    _ if signed => {
                        let text = format!("the pointer {} cannot be loaded with sign extension", field.name);
                        let at = pointer.offset.wrapping_add(offset.into());
                        let words = format!("invalid bpf_context access off={at} size={}", size.bytes());
                        return Err(Violation::new(Code::Context, text).in_linux(words));
                    }
                    FieldKind::PacketData => Value::pointer(Kind::Packet, 0),
                    FieldKind::PacketEnd => Value::pointer(Kind::PacketEnd, 0),
                    FieldKind::PacketMeta => Value::pointer(Kind::PacketMeta, 0),
                    FieldKind::Struct { kind, maybe_null } => {
                        self.named(Kind::Struct { of: kind, maybe_null })
                    }
                    FieldKind::Memory { bytes, writable, maybe_null } => {
                        self.named(Kind::Memory { bytes, read_only: !writable, maybe_null })
                    }
                    FieldKind::SliceData { slice, writable } => {
                        Value::pointer(Kind::Slice { slice, writable }, 0)
                    }
                    FieldKind::SliceEnd { slice } => Value::pointer(Kind::SliceEnd { slice }, 0),
                    FieldKind::Object { of, maybe_null } => {
                        self.host_object(of, Trust::Trusted, maybe_null, field.name)?
                    }
                }
            }
            Region::Kptr { field, .. } => {
                self.record.memory(self.slot)?;
                self.load_kptr(state, field.kind)?
            }
            Region::Arena => {
                self.access_arena()?;
                Value::scalar(Scalar::of_size(size))
            }
            Region::Memory => {
                self.record.memory(self.slot)?;
                match pointer.kind {
                    Kind::MapValue { .. } => self.constant_load(&pointer, offset, size),
                    _ => None,
                }
                .unwrap_or(Value::scalar(Scalar::of_size(size)))
            }
        };
        let value = if signed && value.is_scalar() {
            Value::scalar(value.num.sign_extended(size, skep_isa::Width::W64))
        } else if signed {
            return Err(part_of_pointer());
        } else {
            value
        };
        self.write(state, dst, value)
    }

    /// A pointer of that kind, with an id if it may be null.
    pub(crate) fn named(&mut self, kind: Kind) -> Value {
        let mut value = Value::pointer(kind, 0);
        if kind.is_maybe_null() {
            value.id = self.new_id();
        }
        value
    }

    pub(crate) fn store(
        &mut self,
        state: &mut State,
        size: Size,
        base: Reg,
        offset: i16,
        src: Operand,
    ) -> Checked<()> {
        let mut value = match src {
            Operand::Reg(src) => *self.look(state, src)?,
            Operand::Imm(imm) => Value::constant(i64::from(imm) as u64),
        };
        if let Operand::Reg(src) = src
            && value.is_scalar()
            && value.id == 0
            && !value.num.is_constant()
        {
            // A spilled number stays linked to its register.
            let pointer = state.reg(base);
            if matches!(pointer.kind, Kind::Stack { .. }) {
                value.id = self.new_id();
                state.reg_mut(src).id = value.id;
            }
        }
        let pointer = self.base(state, base, offset, size)?;
        if value.is_scalar()
            && let Some((frame, start)) = self.fixed_stack(state, pointer, offset, size)
        {
            let value = self.spilled(&value, start, size, matches!(src, Operand::Reg(_)));
            return self.store_to_stack(state, frame, (start, start), size, &value);
        }
        let pointer = *pointer;
        let region = match self.stores_to_object(&pointer, offset, size)? {
            true => Region::Memory,
            false => self.region(state, base, &pointer, offset.into(), size.bytes(), Intent::Write)?,
        };
        if value.is_pointer() {
            self.check_spill(&mut value, size, &region)?;
        }
        match region {
            Region::Stack { frame, first, last } => {
                self.store_to_stack(state, frame, (first, last), size, &value)?;
            }
            Region::Field { field, inside } => self.rewrite(&pointer, field, inside, size)?,
            Region::Kptr { map, field } => {
                // It takes the constant 0 for null.
                self.notes.relies = true;
                self.check_kptr_store(self.map(map)?, &field, &value)?;
                self.record.memory(self.slot)?;
            }
            Region::Arena => self.access_arena()?,
            Region::Memory => self.record.memory(self.slot)?,
        }
        Ok(())
    }

    fn store_to_stack(
        &mut self,
        state: &mut State,
        frame: u8,
        (first, last): (u32, u32),
        size: Size,
        value: &Value,
    ) -> Checked<()> {
        self.record.memory(self.slot)?;
        self.overwrite(state, frame, first, last + size.bytes())?;
        self.notes.add(Note::Writes { frame, start: first, end: last + size.bytes(), all: first == last });
        let stack = &mut state.frames_mut()[usize::from(frame)].stack;
        if first == last {
            stack.write(first, size, value);
        } else {
            stack.weak_write(first, last + size.bytes(), value.as_constant() == Some(0));
        }
        Ok(())
    }

    pub(crate) fn atomic(&mut self, state: &mut State, insn: &Insn) -> Checked<()> {
        let Insn::Atomic { op, size, base, offset, src } = *insn else { return Ok(()) };
        let operand = self.read(state, src)?.outside_of_arena();
        let expected = match op {
            AtomicOp::CmpXchg => self.read(state, Reg::R0)?.outside_of_arena(),
            _ => Value::constant(0),
        };
        if (!operand.is_scalar() || !expected.is_scalar()) && !self.may_leak() {
            let found = if operand.is_scalar() { &expected } else { &operand };
            let text = format!("expected numbers as operands of an atomic access, found {found}");
            return Err(Violation::new(Code::PointerLeak, text));
        }
        let pointer = self.read(state, base)?;
        self.check_atomic_place(base, &pointer, offset, size)?;
        let region = match self.stores_to_object(&pointer, offset, size)? {
            true => Region::Memory,
            false => self.region(state, base, &pointer, offset.into(), size.bytes(), Intent::Atomic)?,
        };
        match region {
            Region::Arena => self.access_arena()?,
            _ => self.record.memory(self.slot)?,
        }
        let mut old = Value::scalar(Scalar::of_size(size));
        if let Region::Stack { frame, first, last } = region {
            self.overwrite(state, frame, first, last + size.bytes())?;
            let found = self.load_stack(state, frame, first, last, size)?;
            // A program that may leak addresses may count with them.
            if !found.is_scalar() && !self.may_leak() {
                return Err(part_of_pointer());
            }
            self.notes.add(Note::ReliesOn { frame, start: first, end: last + size.bytes() });
            old = if found.is_scalar() { Value::scalar(found.num) } else { found };
            let stack = &mut state.frames_mut()[usize::from(frame)].stack;
            if first == last {
                self.notes.add(Note::Fills { frame, start: first, end: first + size.bytes() });
                stack.fill(first, first + size.bytes());
            } else {
                stack.weak_write(first, last + size.bytes(), false);
            }
        }
        match op {
            AtomicOp::CmpXchg => self.write(state, Reg::R0, old),
            AtomicOp::Xchg
            | AtomicOp::Add { fetch: true }
            | AtomicOp::Or { fetch: true }
            | AtomicOp::And { fetch: true }
            | AtomicOp::Xor { fetch: true } => self.write(state, src, old),
            AtomicOp::Add { fetch: false }
            | AtomicOp::Or { fetch: false }
            | AtomicOp::And { fetch: false }
            | AtomicOp::Xor { fetch: false } => Ok(()),
        }
    }

    /// Load-acquire and store-release: aligned loads and stores, in memory that does not move.
    pub(crate) fn ordered(&mut self, state: &mut State, insn: &Insn) -> Checked<()> {
        match *insn {
            Insn::LoadAcquire { size, dst, base, offset } => {
                let pointer = self.read(state, base)?;
                self.check_atomic_place(base, &pointer, offset, size)?;
                self.load(state, size, false, dst, base, offset)
            }
            Insn::StoreRelease { size, base, offset, src } => {
                let pointer = self.read(state, base)?;
                self.check_atomic_place(base, &pointer, offset, size)?;
                self.store(state, size, base, offset, Operand::Reg(src))
            }
            _ => Ok(()),
        }
    }

    /// The base address of a load or store.
    #[inline]
    fn base<'s>(&self, state: &'s State, reg: Reg, offset: i16, size: Size) -> Checked<&'s Value> {
        let pointer = self.peek(state, reg)?;
        let config = self.env.config;
        let lenient = config.abilities.lenient;
        if !lenient && pointer.kind == Kind::Context && pointer.offset != 0 {
            let text = format!("expected the unmoved context in {reg}, found {pointer}");
            let words = words::moved_context(reg, pointer.offset);
            return Err(Violation::new(Code::Context, text).in_linux(words));
        }
        let of_stack = !lenient && matches!(pointer.kind, Kind::Stack { .. });
        if config.strict_alignment || of_stack {
            self.check_alignment(reg, pointer, offset, size)?;
        }
        Ok(pointer)
    }

    /// Records a load from the stack whose value is known better than its size tells, or is linked to another number.
    fn note_reload(&mut self, value: &Value, size: Size) {
        let any = value.is_scalar() && value.id == 0 && value.num.includes(&Scalar::of_size(size));
        if !any {
            self.record.reloads(self.slot);
        }
    }

    fn load_stack(&mut self, state: &State, frame: u8, first: u32, last: u32, size: Size) -> Checked<Value> {
        self.record.memory(self.slot)?;
        if first == last {
            self.notes.add(Note::Takes { frame, start: first, end: first + size.bytes() });
            let Frame { stack, function, .. } = &state.frames()[usize::from(frame)];
            return match stack.read(first, size) {
                Found::Value(Value { kind: Kind::Opaque { .. }, .. }) => Err(part_of_object(first)),
                Found::Value(value) if self.forgets_parts(stack, first, size, &value) => {
                    Ok(Value::scalar(Scalar::of_size(size)))
                }
                // Only a whole number stays linked to its copy.
                Found::Value(value)
                    if !self.env.config.abilities.lenient
                        && value.is_scalar()
                        && stack.whole_cell(first, size).is_none() =>
                {
                    Ok(Value { id: 0, offset: 0, ..value })
                }
                Found::Value(value) => Ok(value),
                Found::Remains
                    if !self.may_leak() || stack.opaque_in(first, first + size.bytes()).is_some() =>
                {
                    Err(remains_of_pointer(stack_offset(first), size.bytes()))
                }
                Found::Unwritten | Found::Remains => {
                    self.check_unwritten(stack, first, size.bytes())?;
                    self.record.unwritten(*function);
                    Ok(Value::scalar(Scalar::of_size(size)))
                }
                Found::PartOfPointer => match stack.opaque_in(first, first + size.bytes()) {
                    Some(cell) => Err(part_of_object(cell.start.into())),
                    None => Err(part_of_pointer()),
                },
            };
        }
        let end = last + size.bytes();
        self.check_readable(state, frame, first, end)?;
        if state.frames()[usize::from(frame)].stack.zero.has_all(first, end) {
            return Ok(Value::constant(0));
        }
        Ok(Value::scalar(Scalar::of_size(size)))
    }

    /// Checks that these stack bytes may be read as a number, or that the program may leak addresses.
    pub(crate) fn check_readable(&mut self, state: &State, frame: u8, first: u32, end: u32) -> Checked<()> {
        self.notes.add(Note::Takes { frame, start: first, end });
        let Frame { stack, function, .. } = &state.frames()[usize::from(frame)];
        let written = stack.init.has_all(first, end);
        if let Some(cell) = stack.opaque_in(first, end) {
            return Err(part_of_object(cell.start.into()));
        }
        if !self.may_leak() && stack.is_withheld(first, end) {
            return Err(match written {
                true => part_of_pointer(),
                false => remains_of_pointer(stack_offset(first), end - first),
            });
        }
        if !written {
            self.check_unwritten(stack, first, end - first)?;
            self.record.unwritten(*function);
        }
        Ok(())
    }

    /// Whether a load of another size than the store's knows nothing.
    fn forgets_parts(&self, stack: &Stack, first: u32, size: Size, value: &Value) -> bool {
        let abilities = self.env.config.abilities;
        let in_one_cell = || {
            let mut cells = stack.overlapping(first, first + size.bytes());
            cells.any(|cell| u32::from(cell.start) == first && first + size.bytes() <= cell.end())
        };
        let whole = || stack.whole_cell(first, size).is_some();
        let zeroed = || {
            let mut cells = stack.overlapping(first, first + size.bytes());
            value.as_constant() == Some(0) && cells.all(|cell| cell.value.as_constant() == Some(0))
        };
        let kept = (abilities.linked_spills || whole()) && (abilities.lenient || in_one_cell());
        !kept && value.is_scalar() && !zeroed()
    }

    fn check_unwritten(&self, stack: &Stack, first: u32, size: u32) -> Checked<()> {
        let allowed = match self.env.config.abilities.unwritten_stack {
            Unwritten::None => false,
            Unwritten::AboveWritten => stack.init.has_any(0, (first | 7) + 1),
            Unwritten::Any => true,
        };
        if allowed {
            return Ok(());
        }
        let offset = stack_offset(first);
        let text = format!("the {size} stack bytes at r10{offset:+} were not all written");
        let words = format!("invalid read from stack off {offset}+0 size {size}");
        Err(Violation::new(Code::Uninitialised, text).of_stack(offset, size).in_linux(words))
    }

    /// What of a number in the stack is known, as far as abilities go.
    fn spilled(&self, value: &Value, start: u32, size: Size, from_register: bool) -> Value {
        let abilities = self.env.config.abilities;
        let constant = value.as_constant();
        let kept = match abilities.spills {
            _ if constant == Some(0) => true,
            _ if !abilities.lenient && !start.is_multiple_of(8) => false,
            Spills::All => true,
            _ if !from_register => false,
            Spills::Registers => true,
            Spills::Words => size == Size::B8,
            Spills::Constants => size == Size::B8 && constant.is_some(),
        };
        match kept {
            true if abilities.linked_spills => *value,
            true => Value { id: 0, offset: 0, ..*value },
            false => Value::scalar(Scalar::of_size(size)),
        }
    }

    /// Checks that storing this pointer neither leaks it nor lets it outlive its object.
    fn check_spill(&self, value: &mut Value, size: Size, region: &Region) -> Checked<()> {
        let whole = matches!(region, Region::Stack { first, last, .. } if first == last) && size == Size::B8;
        if value.kind == Kind::Arena && !whole {
            *value = Value::UNKNOWN;
            return Ok(());
        }
        let &Region::Stack { frame, first, last } = region else {
            if let Region::Kptr { .. } = region {
                return Ok(()); // has its own rule
            }
            if self.may_leak() {
                *value = Value::scalar(Scalar::UNKNOWN);
                return Ok(());
            }
            let text = format!(
                "expected a number to store, found {value}: a pointer may only be stored to the stack"
            );
            return Err(Violation::new(Code::PointerLeak, text));
        };
        if size != Size::B8 || first != last {
            let text = format!("{value} may only be stored to the stack whole, and at a constant offset");
            return Err(Violation::new(Code::PointerLeak, text).in_linux("invalid size of register spill"));
        }
        if let Kind::Stack { frame: owner } = value.kind
            && owner > frame
        {
            let text =
                "the address of a function's own stack may not be stored in its caller's, which outlives it";
            let words = "cannot spill pointers to stack into stack frame of the caller";
            return Err(Violation::new(Code::PointerLeak, text).in_linux(words));
        }
        Ok(())
    }

    /// Records how a context access is to be rewritten.
    fn rewrite(
        &mut self,
        pointer: &Value,
        field: &'static ContextField,
        inside: u32,
        size: Size,
    ) -> Checked<()> {
        let Some(native_offset) = field.native_offset else {
            // Such a program can be verified but not run.
            return self.record.place(self.slot, Place::Foreign { field });
        };
        let native_size = if size == field.size { field.native_size } else { size };
        let native = i64::from(native_offset) + i64::from(inside) - i64::from(pointer.offset);
        let Ok(offset) = i16::try_from(native) else {
            let text = format!("the field {} is too far from the base register of the access", field.name);
            return Err(Violation::new(Code::Unsupported, text));
        };
        self.record.place(self.slot, Place::Field { size: native_size, offset })
    }

    fn check_atomic_place(&self, reg: Reg, pointer: &Value, offset: i16, size: Size) -> Checked<()> {
        if pointer.kind == Kind::Context || pointer.has_range() {
            let text = format!(
                "expected a stack, a map value or a buffer for an atomic access, found {pointer} in {reg}"
            );
            let words =
                format!("BPF_ATOMIC stores into R{} {} is not allowed", reg.number(), words::kind(pointer));
            return Err(Violation::new(Code::Misaligned, text).in_linux(words));
        }
        self.check_alignment(reg, pointer, offset, size)
    }

    /// The address must be a multiple of `size`. Objects start at multiples of 8, packets (as in Linux, after
    /// an Ethernet header that is 14 bytes long) two bytes after one of 4.
    fn check_alignment(&self, reg: Reg, pointer: &Value, offset: i16, size: Size) -> Checked<()> {
        if pointer.kind == Kind::Arena {
            return Ok(()); // which byte it means is never known
        }
        let size = size.bytes();
        let start = if pointer.is_packet() { 2 } else { 0 };
        let fixed = i64::from(pointer.offset) + i64::from(offset) + start;
        let address = pointer.num.bits.add(Tnum::constant(fixed as u64));
        if (address.value | address.mask) & u64::from(size - 1) != 0 {
            let text = format!(
                "expected an address that is a multiple of {size}, found {pointer} {offset:+} in {reg}"
            );
            let what = match pointer.kind {
                Kind::Stack { .. } => "stack ",
                Kind::Context => "context ",
                Kind::MapValue { .. } => "value ",
                Kind::MapKey { .. } => "key ",
                _ if pointer.is_packet() => "packet ",
                _ => "",
            };
            let words = words::misaligned(
                what,
                pointer.num.bits,
                start + i64::from(pointer.offset),
                offset.into(),
                size,
            );
            return Err(Violation::new(Code::Misaligned, text).in_linux(words));
        }
        Ok(())
    }
}

/// The offset from `r10` of a byte that is counted from the bottom.
fn stack_offset(at: u32) -> i32 {
    at as i32 - STACK_BYTES as i32
}

#[cold]
fn remains_of_pointer(offset: i32, size: u32) -> Box<Violation> {
    let text = format!(
        "the {size} stack bytes at r10{offset:+} were not all written since a pointer lay there, and what is left of it would leak"
    );
    Violation::new(Code::Uninitialised, text)
        .of_stack(offset, size)
        .suggest("initialise the variable first, padding too: `= {}` or __builtin_memset")
}

#[cold]
fn part_of_object(at: u32) -> Box<Violation> {
    let text = format!(
        "the stack bytes at r10{:+} are a part of a dynptr or an iterator, which only calls may touch",
        stack_offset(at)
    );
    let words = format!("invalid read from stack off {}+0", stack_offset(at));
    Violation::new(Code::OutOfBounds, text).in_linux(words)
}

#[cold]
fn part_of_pointer() -> Box<Violation> {
    Violation::new(
        Code::PointerLeak,
        "the stack bytes that are read hold a pointer, which would leak as a number",
    )
    .in_linux("invalid size of register fill")
}
