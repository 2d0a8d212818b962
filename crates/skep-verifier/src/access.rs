//! Loads, stores and atomics: which object an address points into, and whether the access stays inside.

use crate::Code;
use crate::alu::CHECK_NULL;
use crate::facts::Place;
use crate::fault::{Fault, Step};
use crate::scalar::Scalar;
use crate::stack::{Found, STACK_BYTES};
use crate::state::State;
use crate::tnum::Tnum;
use crate::value::{Kind, Value};
use crate::walk::Walker;
use skep_abi::{Context, ContextField, ContextLayout, FieldKind, MapFlags, StructKind};
use skep_isa::{AtomicOp, Insn, Operand, Reg, Size};

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    Read,
    Write,
    Atomic,
}

impl Intent {
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Where an access that is allowed goes.
pub(crate) enum Region {
    /// Bytes of a stack, counted from its bottom: the access starts in `first..=last`.
    Stack { frame: u8, first: u32, last: u32 },
    /// A field of the context, this many bytes into it.
    Field { field: &'static ContextField, inside: u32 },
    /// Memory of which the contents are not followed.
    Memory,
}

/// The first byte of an access relative to its object, at least and at most.
struct Span {
    low: i64,
    high: i64,
}

impl Walker<'_> {
    pub(crate) fn load(
        &mut self,
        state: &mut State,
        size: Size,
        signed: bool,
        dst: Reg,
        base: Reg,
        offset: i16,
    ) -> Step<()> {
        let pointer = self.base(state, base, offset, size)?;
        let value = match self.region(state, base, &pointer, offset.into(), size.bytes(), Intent::Read)? {
            Region::Stack { frame, first, last } => self.load_stack(state, frame, first, last, size)?,
            Region::Field { field, inside } => {
                self.rewrite(&pointer, field, inside, size)?;
                match field.kind {
                    FieldKind::Scalar => Value::scalar(Scalar::of_size(size)),
                    _ if signed => {
                        let text =
                            format!("the pointer {} cannot be loaded with its sign extended", field.name);
                        return Err(Fault::new(Code::Context, text));
                    }
                    FieldKind::PacketData => Value::pointer(Kind::Packet, 0),
                    FieldKind::PacketEnd => Value::pointer(Kind::PacketEnd, 0),
                    FieldKind::PacketMeta => Value::pointer(Kind::PacketMeta, 0),
                    FieldKind::Struct { kind, maybe_null } => {
                        self.named(Kind::Struct { of: kind, maybe_null })
                    }
                    FieldKind::Memory { bytes, maybe_null } => {
                        self.named(Kind::Memory { bytes, read_only: false, maybe_null })
                    }
                    FieldKind::Object { .. } => {
                        let text =
                            format!("the field {}, an object of the host: not supported yet", field.name);
                        return Err(Fault::new(Code::Unsupported, text));
                    }
                }
            }
            Region::Memory => {
                self.record.place(self.slot, Place::Memory)?;
                Value::scalar(Scalar::of_size(size))
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
    ) -> Step<()> {
        let mut value = self.operand(state, src)?;
        if let Operand::Reg(src) = src
            && value.is_scalar()
            && value.id == 0
            && !value.num.is_constant()
        {
            // What is spilled stays tied to its register.
            let pointer = state.reg(base);
            if matches!(pointer.kind, Kind::Stack { .. }) {
                value.id = self.new_id();
                state.reg_mut(src).id = value.id;
            }
        }
        let pointer = self.base(state, base, offset, size)?;
        let region = self.region(state, base, &pointer, offset.into(), size.bytes(), Intent::Write)?;
        if value.is_pointer() {
            self.check_spill(&value, size, &region)?;
        }
        match region {
            Region::Stack { frame, first, last } => {
                self.record.place(self.slot, Place::Memory)?;
                let stack = &mut state.frames_mut()[usize::from(frame)].stack;
                if first == last {
                    stack.write(first, size, &value);
                } else {
                    stack.smear(first, last + size.bytes(), value.as_constant() == Some(0));
                }
            }
            Region::Field { field, inside } => self.rewrite(&pointer, field, inside, size)?,
            Region::Memory => self.record.place(self.slot, Place::Memory)?,
        }
        Ok(())
    }

    pub(crate) fn atomic(&mut self, state: &mut State, insn: &Insn) -> Step<()> {
        let Insn::Atomic { op, size, base, offset, src } = *insn else { return Ok(()) };
        let operand = self.read(state, src)?;
        let expected = if op == AtomicOp::CmpXchg { self.read(state, Reg::R0)? } else { Value::constant(0) };
        if !operand.is_scalar() || !expected.is_scalar() {
            let found = if operand.is_scalar() { &expected } else { &operand };
            let text = format!("expected numbers as operands of an atomic access, found {found}");
            return Err(Fault::new(Code::PointerLeak, text));
        }
        let pointer = self.read(state, base)?;
        self.check_atomic_place(base, &pointer, offset, size)?;
        let region = self.region(state, base, &pointer, offset.into(), size.bytes(), Intent::Atomic)?;
        self.record.place(self.slot, Place::Memory)?;
        if let Region::Stack { frame, first, last } = region {
            if !self.load_stack(state, frame, first, last, size)?.is_scalar() {
                return Err(part_of_pointer());
            }
            let stack = &mut state.frames_mut()[usize::from(frame)].stack;
            if first == last {
                stack.fill(first, first + size.bytes());
            } else {
                stack.smear(first, last + size.bytes(), false);
            }
        }
        let old = Value::scalar(Scalar::of_size(size));
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

    /// Load-acquire and store-release: like loads and stores, aligned, and only of memory that stays put.
    pub(crate) fn ordered(&mut self, state: &mut State, insn: &Insn) -> Step<()> {
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
    fn base(&self, state: &State, reg: Reg, offset: i16, size: Size) -> Step<Value> {
        let pointer = self.read(state, reg)?;
        if self.config.strict_alignment {
            self.check_alignment(reg, &pointer, offset, size)?;
        }
        Ok(pointer)
    }

    fn load_stack(&mut self, state: &State, frame: u8, first: u32, last: u32, size: Size) -> Step<Value> {
        self.record.place(self.slot, Place::Memory)?;
        let stack = &state.frames()[usize::from(frame)].stack;
        if first == last {
            return match stack.read(first, size) {
                Found::Value(value) => Ok(value),
                Found::Uninit => Err(uninitialised_stack(stack_offset(first), size.bytes())),
                Found::PartOfPointer => Err(part_of_pointer()),
            };
        }
        let end = last + size.bytes();
        self.check_initialised(state, frame, first, end)?;
        if stack.zero.has_all(first, end) {
            return Ok(Value::constant(0));
        }
        Ok(Value::scalar(Scalar::of_size(size)))
    }

    /// All of those stack bytes must hold numbers.
    pub(crate) fn check_initialised(&self, state: &State, frame: u8, first: u32, end: u32) -> Step<()> {
        let stack = &state.frames()[usize::from(frame)].stack;
        if !stack.init.has_all(first, end) {
            return Err(uninitialised_stack(stack_offset(first), end - first));
        }
        if stack.pointers.has_any(first, end) {
            return Err(part_of_pointer());
        }
        Ok(())
    }

    /// Storing this pointer there must not leak it or outlive what it points to.
    fn check_spill(&self, value: &Value, size: Size, region: &Region) -> Step<()> {
        let &Region::Stack { frame, first, last } = region else {
            let text = format!(
                "expected a number to store, found {value}: a pointer may only be stored to the stack"
            );
            return Err(Fault::new(Code::PointerLeak, text));
        };
        if size != Size::B8 || first != last {
            let text = format!("{value} may only be stored to the stack whole, and at a constant offset");
            return Err(Fault::new(Code::PointerLeak, text));
        }
        if let Kind::Stack { frame: owner } = value.kind
            && owner > frame
        {
            let text =
                "the address of a function's own stack may not be stored in its caller's, which outlives it";
            return Err(Fault::new(Code::PointerLeak, text));
        }
        Ok(())
    }

    /// Takes down how a context access is to be rewritten.
    fn rewrite(
        &mut self,
        pointer: &Value,
        field: &'static ContextField,
        inside: u32,
        size: Size,
    ) -> Step<()> {
        let Some(native_offset) = field.native_offset else {
            // It can be verified, and skep cannot run it.
            return self.record.place(self.slot, Place::Foreign { field });
        };
        let native_size = if size == field.size { field.native_size } else { size };
        let native = i64::from(native_offset) + i64::from(inside) - i64::from(pointer.offset);
        let Ok(offset) = i16::try_from(native) else {
            let text =
                format!("the field {} is too far from the register that it is accessed by", field.name);
            return Err(Fault::new(Code::Unsupported, text));
        };
        self.record.place(self.slot, Place::Field { size: native_size, offset })
    }

    /// The region that `size` bytes at `pointer + offset` lie in, if `intent` is allowed there.
    pub(crate) fn region(
        &mut self,
        state: &State,
        reg: Reg,
        pointer: &Value,
        offset: i32,
        size: u32,
        intent: Intent,
    ) -> Step<Region> {
        let fixed = i64::from(pointer.offset) + i64::from(offset);
        let span = Span {
            low: fixed.saturating_add(pointer.num.smin),
            high: fixed.saturating_add(pointer.num.smax),
        };
        let bytes = i64::from(size);
        match pointer.kind {
            Kind::Stack { frame } => {
                let stack = i64::from(STACK_BYTES);
                if span.low < -stack || span.high + bytes > 0 {
                    let text = format!(
                        "expected an access inside of the {stack} bytes of stack below r10, found {} in {reg}",
                        found(&span, bytes)
                    );
                    let code = if span.low < -stack { Code::Stack } else { Code::OutOfBounds };
                    return Err(bounded(Fault::new(code, text), pointer));
                }
                let function = state.frames()[usize::from(frame)].function;
                self.record.stack(function, (-span.low) as u32);
                let place = |at: i64| (at + stack) as u32;
                Ok(Region::Stack { frame, first: place(span.low), last: place(span.high) })
            }
            Kind::Context => self.context_region(reg, pointer, span.low, size, intent),
            Kind::Packet | Kind::PacketMeta => {
                if intent.writes() && !self.program_type().writes_packet {
                    let text = format!("programs of type {} may not write packets", self.program_type().name);
                    return Err(Fault::new(Code::ReadOnly, text));
                }
                // A range of 0 says nothing at all, not even that offset 0 is not beyond the end.
                let checked = pointer.range > 0 || bytes == 0;
                if span.low < 0 || !checked || fixed + bytes > i64::from(pointer.range) {
                    let text = format!(
                        "expected an access to packet bytes that were checked against data_end, found {} in {reg}, \
                         which is {pointer}",
                        found(&span, bytes)
                    );
                    let suggestion = if span.low < 0 {
                        "make sure that the offset is not negative"
                    } else if pointer.num.umax > crate::pointer::MAX_PACKET_OFFSET {
                        "bound the variable part of the offset first: a mask or a comparison with at most 65535"
                    } else {
                        "compare the end of the access with data_end first"
                    };
                    return Err(Fault::new(Code::OutOfBounds, text).suggest(suggestion));
                }
                Ok(Region::Memory)
            }
            Kind::MapValue { map, maybe_null: false } => {
                let def = self.map(map)?;
                let denied = if intent.writes() { MapFlags::RDONLY_PROG } else { MapFlags::WRONLY_PROG };
                if def.flags.contains(denied)
                    || (intent == Intent::Atomic && def.flags.contains(MapFlags::WRONLY_PROG))
                {
                    let verb = if intent.writes() { "write" } else { "read" };
                    let text = format!("programs may not {verb} values of the map {}", def.name);
                    return Err(Fault::new(Code::ReadOnly, text));
                }
                if span.low < 0 || span.high + bytes > i64::from(def.value_size) {
                    let text = format!(
                        "expected an access inside of the {}-byte value of the map {}, found {} in {reg}",
                        def.value_size,
                        def.name,
                        found(&span, bytes)
                    );
                    return Err(bounded(Fault::new(Code::OutOfBounds, text), pointer));
                }
                Ok(Region::Memory)
            }
            Kind::Buffer { bytes: length } => self.inside(reg, pointer, &span, bytes, length, "buffer"),
            _ if pointer.is_maybe_null() => {
                let text = format!("{reg} may be null: {pointer}");
                Err(Fault::new(Code::MaybeNull, text).suggest(CHECK_NULL))
            }
            Kind::Memory { bytes: length, read_only, .. } => {
                if intent.writes() && read_only {
                    let text = format!("{reg} points to memory that may only be read: {pointer}");
                    return Err(Fault::new(Code::ReadOnly, text));
                }
                self.inside(reg, pointer, &span, bytes, length, "memory")
            }
            Kind::MapKey { map } => {
                if intent.writes() {
                    let text = format!("the key of a map's element may only be read: {pointer} in {reg}");
                    return Err(Fault::new(Code::ReadOnly, text));
                }
                let length = self.map(map)?.key_size;
                self.inside(reg, pointer, &span, bytes, length, "key")
            }
            Kind::Struct { of, .. } => self.struct_region(reg, pointer, of, span.low, size, intent),
            Kind::Object { .. } => self.object_region(reg, pointer, span.low, size, intent),
            Kind::Scalar if pointer.as_constant() == Some(0) => {
                Err(Fault::new(Code::MaybeNull, format!("{reg} is null here")))
            }
            Kind::MapValue { .. }
            | Kind::PacketEnd
            | Kind::PacketHalf
            | Kind::Map { .. }
            | Kind::InnerMap { .. }
            | Kind::Function { .. }
            | Kind::Opaque { .. }
            | Kind::Scalar
            | Kind::Uninit
            | Kind::Lost { .. } => {
                let text = format!("expected a pointer to memory in {reg}, found {pointer}");
                Err(Fault::new(Code::OutOfBounds, text))
            }
        }
    }

    /// An access to an object of that many bytes.
    fn inside(
        &self,
        reg: Reg,
        pointer: &Value,
        span: &Span,
        bytes: i64,
        length: u32,
        what: &str,
    ) -> Step<Region> {
        if span.low < 0 || span.high + bytes > i64::from(length) {
            let text = format!(
                "expected an access inside of the {length}-byte {what}, found {} in {reg}",
                found(span, bytes)
            );
            return Err(bounded(Fault::new(Code::OutOfBounds, text), pointer));
        }
        Ok(Region::Memory)
    }

    /// An access to a structure with a stable layout.
    fn struct_region(
        &mut self,
        reg: Reg,
        pointer: &Value,
        of: StructKind,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Step<Region> {
        if !pointer.is_fixed() {
            let text = format!("expected a constant offset into {}, found {pointer} in {reg}", of.name());
            return Err(Fault::new(Code::PointerArithmetic, text));
        }
        self.field_region(reg, of.layout(), at, size, intent)
    }

    /// An access to an object of the host.
    fn object_region(
        &mut self,
        reg: Reg,
        pointer: &Value,
        _at: i64,
        _size: u32,
        _intent: Intent,
    ) -> Step<Region> {
        let text = format!("accesses to objects of the host, such as {pointer} in {reg}: not supported yet");
        Err(Fault::new(Code::Unsupported, text))
    }

    fn context_region(
        &mut self,
        reg: Reg,
        pointer: &Value,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Step<Region> {
        match self.program_type().context {
            Context::Struct(layout) => self.field_region(reg, layout, at, size, intent),
            Context::Buffer | Context::Bytes { .. } | Context::Arguments { .. } => {
                Err(Fault::new(Code::Context, format!("{reg} is no structure: {pointer}")))
            }
        }
    }

    /// An access to a field of a structure that is laid out by a table.
    fn field_region(
        &mut self,
        reg: Reg,
        layout: &'static ContextLayout,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Step<Region> {
        let field = u32::try_from(at).ok().and_then(|at| layout.field(at, size));
        let Some(field) = field else {
            let text = format!(
                "no field of {} that programs of type {} may access contains bytes {at}..{}",
                layout.name,
                self.program_type().name,
                at + i64::from(size)
            );
            return Err(Fault::new(Code::Context, text));
        };
        let inside = at as u32 - field.offset;
        if intent.writes() && field.writes.is_empty() {
            let text = format!("programs of type {} may not write {}", self.program_type().name, field.name);
            return Err(Fault::new(Code::ReadOnly, text));
        }
        if at % i64::from(size) != 0 {
            let text = format!("{size} bytes at offset {at} of {} in {reg} are not aligned", layout.name);
            return Err(Fault::new(Code::Misaligned, text));
        }
        if !field.allows(inside, size, intent.writes()) {
            let whole = field.size.bytes();
            let text =
                format!("the field {} must be accessed whole, with {whole} bytes, found {size}", field.name);
            return Err(Fault::new(Code::Context, text));
        }
        Ok(Region::Field { field, inside })
    }

    fn check_atomic_place(&self, reg: Reg, pointer: &Value, offset: i16, size: Size) -> Step<()> {
        if matches!(pointer.kind, Kind::Context | Kind::Packet | Kind::PacketMeta) {
            let text = format!(
                "expected a stack, a map value or a buffer for an atomic access, found {pointer} in {reg}"
            );
            return Err(Fault::new(Code::Misaligned, text));
        }
        self.check_alignment(reg, pointer, offset, size)
    }

    /// The address must be a multiple of `size`. Objects start at multiples of 8, packets (as in Linux, after
    /// an Ethernet header that is 14 bytes long) two bytes after one of 4.
    fn check_alignment(&self, reg: Reg, pointer: &Value, offset: i16, size: Size) -> Step<()> {
        let size = size.bytes();
        let start = if pointer.is_packet() { 2 } else { 0 };
        let fixed = i64::from(pointer.offset) + i64::from(offset) + start;
        let address = pointer.num.bits.add(Tnum::constant(fixed as u64));
        if (address.value | address.mask) & u64::from(size - 1) != 0 {
            let text = format!(
                "expected an address that is a multiple of {size}, found {pointer} {offset:+} in {reg}"
            );
            return Err(Fault::new(Code::Misaligned, text));
        }
        Ok(())
    }
}

/// The offset from `r10` of a byte that is counted from the bottom.
fn stack_offset(at: u32) -> i32 {
    at as i32 - STACK_BYTES as i32
}

/// The bytes of an access, as text.
fn found(span: &Span, bytes: i64) -> String {
    if span.low == span.high {
        format!("bytes {}..{}", span.low, span.low + bytes)
    } else {
        format!("{bytes} bytes that start somewhere in {}..={}", span.low, span.high)
    }
}

/// Suggests bounding the variable part, where there is one.
fn bounded(fault: Box<Fault>, pointer: &Value) -> Box<Fault> {
    if pointer.is_fixed() {
        fault
    } else {
        fault.suggest("bound the variable part of the offset with a comparison or a mask first")
    }
}

#[cold]
fn uninitialised_stack(offset: i32, size: u32) -> Box<Fault> {
    let text = format!("not all of the {size} stack bytes at r10{offset:+} were written before");
    Fault::new(Code::Uninitialised, text)
        .suggest("initialise the variable first, padding too: `= {}` or __builtin_memset")
}

#[cold]
fn part_of_pointer() -> Box<Fault> {
    Fault::new(
        Code::PointerLeak,
        "the stack bytes that are read hold a pointer, which would leak as a number",
    )
}
