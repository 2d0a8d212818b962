//! Regions: which object an address points into, and whether an access is inside of it.

use crate::domain::stack::STACK_BYTES;
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::domain::words::{self, Bounded};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use crate::step::object::MAX_ELEMENT;
use skep_abi::{Context, ContextField, ContextLayout, MapFlags, MapKind, SpecialField, StructKind};
use skep_isa::{Reg, Size};

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

/// The place of an allowed access.
pub(crate) enum Region {
    /// Bytes of a stack, counted from its bottom: the access starts in `first..=last`.
    Stack { frame: u8, first: u32, last: u32 },
    /// A field of the context, this many bytes into it.
    Field { field: &'static ContextField, inside: u32 },
    /// A pointer to a host's object in a value of that map.
    Kptr { map: u32, field: SpecialField },
    /// The program's arena.
    Arena,
    /// Memory whose contents are not followed.
    Memory,
}

/// The first byte of an access relative to its object, at least and at most.
struct Span {
    low: i64,
    high: i64,
}

impl Span {
    fn of(pointer: &Value, fixed: i64) -> Self {
        let (low, high) = (pointer.num.smin, pointer.num.smax);
        Self { low: fixed.saturating_add(low), high: fixed.saturating_add(high) }
    }
}

impl Transfer<'_> {
    /// Fast path: the frame and first byte of an access to the stack at a known place.
    /// For all other accesses, [`Self::region`] decides.
    #[inline]
    pub(crate) fn fixed_stack(
        &mut self,
        state: &State,
        pointer: &Value,
        offset: i16,
        size: Size,
    ) -> Option<(u8, u32)> {
        let Kind::Stack { frame } = pointer.kind else { return None };
        let at = pointer.offset + i32::from(offset);
        let stack = STACK_BYTES as i32;
        if !pointer.is_fixed() || at < -stack || at + size.bytes() as i32 > 0 {
            return None;
        }
        self.record.stack(state.frames()[usize::from(frame)].function, at.unsigned_abs());
        Some((frame, (at + stack) as u32))
    }

    /// The region of `size` bytes at `pointer + offset`, if `intent` is allowed there.
    pub(crate) fn region(
        &mut self,
        state: &State,
        reg: Reg,
        pointer: &Value,
        offset: i32,
        size: u32,
        intent: Intent,
    ) -> Checked<Region> {
        let fixed = i64::from(pointer.offset) + i64::from(offset);
        let span = Span::of(pointer, fixed);
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
                    let access = if intent.writes() { " write to" } else { " read from" };
                    let words = words::outside_of_stack(reg, pointer, fixed, bytes, access);
                    return Err(bounded(Violation::new(code, text).in_linux(words), pointer));
                }
                let function = state.frames()[usize::from(frame)].function;
                self.record.stack(function, (-span.low) as u32);
                let place = |at: i64| (at + stack) as u32;
                Ok(Region::Stack { frame, first: place(span.low), last: place(span.high) })
            }
            Kind::Arena => Ok(Region::Arena),
            Kind::Context => self.context_region(reg, pointer, span.low, size, intent).map_err(|violation| {
                let strict = self.env.config.strict_alignment;
                violation.in_linux(words::context(reg, pointer, span.low, size, strict))
            }),
            Kind::Slice { slice, writable } => {
                if intent.writes() && !writable {
                    let text = format!("{reg} points to bytes of the host that may only be read: {pointer}");
                    return Err(Violation::new(Code::ReadOnly, text).in_linux(words::read_only(reg, pointer)));
                }
                let end = self.env.slice_end(slice);
                self.checked_bytes(reg, pointer, &span, fixed, bytes, end)
            }
            Kind::Packet | Kind::PacketMeta => {
                if intent.writes() && !self.env.program_type().writes_packet {
                    let text =
                        format!("programs of type {} may not write packets", self.env.program_type().name);
                    return Err(Violation::new(Code::ReadOnly, text).in_linux("cannot write into packet"));
                }
                self.checked_bytes(reg, pointer, &span, fixed, bytes, "data_end")
            }
            Kind::MapValue { map, maybe_null: false } => {
                let def = self.map(map)?;
                let denied = if intent.writes() { MapFlags::RDONLY_PROG } else { MapFlags::WRONLY_PROG };
                // Those of devices are the host's own.
                let of_devices = matches!(def.kind(), MapKind::Devmap | MapKind::DevmapHash);
                if def.flags().contains(denied)
                    || (of_devices && intent.writes())
                    || (intent == Intent::Atomic && def.flags().contains(MapFlags::WRONLY_PROG))
                {
                    let verb = if intent.writes() { "write" } else { "read" };
                    let text = format!("programs may not {verb} values of the map {}", def.name());
                    let verb = if intent.writes() { "write into" } else { "read from" };
                    return Err(Violation::new(Code::ReadOnly, text).in_linux(format!(
                        "{verb} map forbidden, value_size={} off={fixed} size={bytes}",
                        def.value_size()
                    )));
                }
                if span.low < 0 || span.high + bytes > i64::from(def.value_size()) {
                    let text = format!(
                        "expected an access inside of the {}-byte value of the map {}, found {} in {reg}",
                        def.value_size(),
                        def.name(),
                        found(&span, bytes)
                    );
                    let words =
                        words::outside(reg, pointer, fixed, bytes, Bounded::MapValue(def.value_size()));
                    return Err(bounded(Violation::new(Code::OutOfBounds, text).in_linux(words), pointer));
                }
                if def.fields().is_empty() {
                    return Ok(Region::Memory);
                }
                let bytes = (span.low, span.high + bytes);
                Ok(match self.check_special(def, reg, pointer, bytes, Some(intent))? {
                    Some(field) => Region::Kptr { map, field },
                    None => Region::Memory,
                })
            }
            Kind::Buffer { bytes: length } => {
                self.inside(reg, pointer, fixed, bytes, Bounded::Memory(length))
            }
            _ if pointer.is_maybe_null() => {
                let text = format!("{reg} may be null: {pointer}");
                let words = words::no_memory(reg, pointer);
                Err(Violation::new(Code::MaybeNull, text).suggest(CHECK_NULL).in_linux(words))
            }
            Kind::Memory { bytes: length, read_only, .. } => {
                if intent.writes() && read_only {
                    let text = format!("{reg} points to memory that may only be read: {pointer}");
                    return Err(Violation::new(Code::ReadOnly, text).in_linux(words::read_only(reg, pointer)));
                }
                let region = self.inside(reg, pointer, fixed, bytes, Bounded::Memory(length))?;
                if length == MAX_ELEMENT {
                    let end = (span.high + bytes) as u32;
                    self.record.element(read_only, end, intent.writes());
                }
                Ok(region)
            }
            Kind::MapKey { map } => {
                if intent.writes() {
                    let text = format!("the key of a map's element may only be read: {pointer} in {reg}");
                    let words = format!("write to change key R{} not allowed", reg.number());
                    return Err(Violation::new(Code::ReadOnly, text).in_linux(words));
                }
                let length = self.map(map)?.key_size();
                self.inside(reg, pointer, fixed, bytes, Bounded::MapKey(length))
            }
            Kind::Struct { of, .. } => {
                self.struct_region(reg, pointer, of, span.low, size, intent).map_err(|violation| {
                    match violation.code {
                        Code::ReadOnly => violation.in_linux(words::read_only(reg, pointer)),
                        _ => violation.in_linux(words::structure(reg, pointer, span.low, size)),
                    }
                })
            }
            Kind::Own { .. } => self.own_region(reg, pointer, span.low, size, intent),
            Kind::Object { .. } => self.object_region(reg, pointer, span.low, size, intent),
            Kind::Scalar if pointer.as_constant() == Some(0) => {
                let words = words::no_memory(reg, pointer);
                Err(Violation::new(Code::MaybeNull, format!("{reg} is null here")).in_linux(words))
            }
            Kind::MapValue { .. }
            | Kind::PacketEnd
            | Kind::SliceEnd { .. }
            | Kind::PacketHalf
            | Kind::Map { .. }
            | Kind::InnerMap { .. }
            | Kind::Function { .. }
            | Kind::Opaque { .. }
            | Kind::Scalar
            | Kind::Uninit
            | Kind::Clobbered { .. }
            | Kind::Stale { .. } => {
                let text = format!("expected a pointer to memory in {reg}, found {pointer}");
                Err(Violation::new(Code::OutOfBounds, text).in_linux(words::no_memory(reg, pointer)))
            }
        }
    }

    /// An access to bytes of a packet or slice, which a comparison with its end must have found.
    fn checked_bytes(
        &self,
        reg: Reg,
        pointer: &Value,
        span: &Span,
        fixed: i64,
        bytes: i64,
        end: &str,
    ) -> Checked<Region> {
        // A range of 0 says nothing, not even that offset 0 is before the end.
        let checked = pointer.range > 0 || bytes == 0;
        if span.low >= 0 && checked && fixed + bytes <= i64::from(pointer.range) {
            return Ok(Region::Memory);
        }
        let what = if pointer.is_packet() { "packet bytes" } else { "bytes" };
        let text = format!(
            "expected an access to {what} that were checked against {end}, found {} in {reg}, which is {pointer}",
            found(span, bytes)
        );
        let suggestion = if span.low < 0 {
            "make sure that the offset is not negative"
        } else if pointer.is_packet() && pointer.num.umax > crate::step::pointer::MAX_PACKET_OFFSET {
            "bound the variable part of the offset first: a mask or a comparison with at most 65535"
        } else if pointer.is_packet() {
            "compare the end of the access with data_end first"
        } else {
            "compare the end of the access with the end of the same bytes first"
        };
        let words = words::outside_of_packet(reg, pointer, fixed, bytes);
        Err(Violation::new(Code::OutOfBounds, text).suggest(suggestion).in_linux(words))
    }

    /// An access to an object of that many bytes.
    fn inside(&self, reg: Reg, pointer: &Value, fixed: i64, bytes: i64, of: Bounded) -> Checked<Region> {
        let span = Span::of(pointer, fixed);
        let (Bounded::MapValue(length) | Bounded::MapKey(length) | Bounded::Memory(length)) = of;
        if span.low < 0 || span.high + bytes > i64::from(length) {
            let what = match of {
                Bounded::MapKey(_) => "key",
                _ if matches!(pointer.kind, Kind::Buffer { .. }) => "buffer",
                _ => "memory",
            };
            let text = format!(
                "expected an access inside of the {length}-byte {what}, found {} in {reg}",
                found(&span, bytes)
            );
            let words = words::outside(reg, pointer, fixed, bytes, of);
            return Err(bounded(Violation::new(Code::OutOfBounds, text).in_linux(words), pointer));
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
    ) -> Checked<Region> {
        if !pointer.is_fixed() {
            let text = format!("expected a constant offset into {}, found {pointer} in {reg}", of.name());
            return Err(Violation::new(Code::PointerArithmetic, text));
        }
        let Some(layout) = of.layout(self.env.program_type()) else {
            let text = format!("{reg} points to a structure that the program's type lacks: {pointer}");
            return Err(Violation::new(Code::Types, text));
        };
        self.field_region(reg, layout, at, size, intent)
    }

    fn context_region(
        &mut self,
        reg: Reg,
        pointer: &Value,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Checked<Region> {
        match self.env.program_type().context {
            Context::Struct(layout) => self.field_region(reg, layout, at, size, intent),
            Context::Bytes { name, first, bytes, writable, words } => {
                let inside = at >= i64::from(first) && at + i64::from(size) <= i64::from(bytes);
                if !inside || (words && size != 8) || at % i64::from(size) != 0 {
                    let unit = if words { "8 bytes" } else { "1, 2, 4 or 8 bytes" };
                    let text = format!(
                        "expected an access to {unit} at a multiple of their size in bytes {first}..{bytes} of {name}, found \
                         bytes {at}..{} in {reg}",
                        at + i64::from(size)
                    );
                    return Err(Violation::new(Code::Context, text));
                }
                if intent.writes() && !writable {
                    let text =
                        format!("programs of type {} may not write {name}", self.env.program_type().name);
                    return Err(Violation::new(Code::ReadOnly, text));
                }
                self.record.context_bytes((at + i64::from(size)) as u32);
                Ok(Region::Memory)
            }
            Context::Buffer | Context::Arguments { .. } => {
                Err(Violation::new(Code::Context, format!("{reg} does not point to a structure: {pointer}")))
            }
        }
    }

    /// An access to a field of a structure with a layout table.
    fn field_region(
        &mut self,
        reg: Reg,
        layout: &'static ContextLayout,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Checked<Region> {
        let field = u32::try_from(at).ok().and_then(|at| layout.field(at, size));
        let Some(field) = field else {
            let text = format!(
                "no field of {} that programs of type {} may access contains bytes {at}..{}",
                layout.name,
                self.env.program_type().name,
                at + i64::from(size)
            );
            return Err(Violation::new(Code::Context, text));
        };
        let inside = at as u32 - field.offset;
        if intent.writes() && field.writes.is_empty() {
            let text =
                format!("programs of type {} may not write {}", self.env.program_type().name, field.name);
            return Err(Violation::new(Code::ReadOnly, text));
        }
        if at % i64::from(size) != 0 {
            let text = format!("{size} bytes at offset {at} of {} in {reg} are not aligned", layout.name);
            return Err(Violation::new(Code::Misaligned, text));
        }
        if !field.allows(inside, size, intent.writes()) {
            let whole = field.size.bytes();
            let text =
                format!("the field {} must be accessed whole, with {whole} bytes, found {size}", field.name);
            return Err(Violation::new(Code::Context, text));
        }
        Ok(Region::Field { field, inside })
    }
}

/// The bytes of an access, as text.
fn found(span: &Span, bytes: i64) -> String {
    if span.low == span.high {
        format!("bytes {}..{}", span.low, span.low + bytes)
    } else {
        format!("{bytes} bytes that start somewhere in {}..={}", span.low, span.high)
    }
}

/// Suggests bounding the variable part, if there is one.
fn bounded(violation: Box<Violation>, pointer: &Value) -> Box<Violation> {
    if pointer.is_fixed() {
        violation
    } else {
        violation.suggest("bound the variable part of the offset with a comparison or a mask first")
    }
}
