//! Memory arguments of helpers, and constants in memory.

use crate::domain::state::State;
use crate::domain::value::{Kind, StackBytes, Value};
use crate::domain::words;
use crate::program::config::Unwritten;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use crate::step::args::expected;
use crate::step::notes::Note;
use crate::step::region::{Intent, Region};
use skep_abi::{Access, HelperProto};
use skep_isa::{Reg, Size};

/// Bytes of a stack that a call may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    frame: u8,
    start: u32,
    end: u32,
    /// The first bytes of them, which are certainly written.
    sure: u32,
}

impl Filled {
    /// The note of it.
    pub(crate) fn note(&self) -> Note {
        Note::Fills { frame: self.frame, start: self.start, end: self.start + self.sure }
    }

    /// Updates the stack.
    pub(crate) fn apply(&self, state: &mut State) {
        let stack = &mut state.frames_mut()[usize::from(self.frame)].stack;
        stack.weak_write(self.start, self.end, false);
        stack.fill(self.start, self.start + self.sure);
    }

    /// Which they are, if there are any.
    pub(crate) fn bytes(&self) -> Option<StackBytes> {
        let &Self { frame, start, end, .. } = self;
        (start < end).then_some(StackBytes { frame, start, end })
    }
}

impl<'a> Transfer<'a> {
    /// Checks a memory argument of at least and at most these sizes. Returns the stack bytes that the call fills, to be
    /// applied once all arguments are checked.
    pub(crate) fn memory(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        reg: Reg,
        value: &Value,
        (least, most): (u32, u32),
        access: Access,
    ) -> Checked<Option<Filled>> {
        if value.is_maybe_null() {
            let text = format!("{} is given {reg}, which may be null: {value}", proto.name);
            let words = words::argument(reg, value, &["fp"]);
            return Err(Violation::new(Code::MaybeNull, text).suggest(CHECK_NULL).in_linux(words));
        }
        let memory = matches!(
            value.kind,
            Kind::Stack { .. }
                | Kind::Packet
                | Kind::PacketMeta
                | Kind::Slice { .. }
                | Kind::MapValue { .. }
                | Kind::MapKey { .. }
                | Kind::Memory { .. }
                | Kind::Object { .. }
                | Kind::Buffer { .. }
        );
        if !memory {
            return Err(expected(proto, reg, "memory", value));
        }
        if value.dies_with_packet() && proto.moves_packet {
            let text = format!("{} may move the packet, so {reg} may not point into it", proto.name);
            return Err(
                Violation::new(Code::Argument, text).in_linux("helper access to the packet is not allowed")
            );
        }
        if value.is_packet() && !proto.takes_packet() && !self.env.config.abilities.lenient {
            return Err(expected(proto, reg, "memory outside of packets", value));
        }
        let abilities = self.env.config.abilities;
        if !abilities.lenient
            && matches!(value.kind, Kind::Stack { .. })
            && value.is_fixed()
            && value.offset >= 0
        {
            return Err(expected(proto, reg, "memory", value));
        }
        // Older verifiers take memory of variable size for memory that is read.
        let fills = access == Access::Write && (least == most || abilities.unwritten_stack == Unwritten::Any);
        let access = if access == Access::Write && !fills { Access::ReadWrite } else { access };
        let outside = |violation: Box<Violation>| match value.kind {
            Kind::Stack { .. } => violation.in_linux(words::outside_of_stack(
                reg,
                value,
                value.offset.into(),
                most.into(),
                " indirect access to",
            )),
            _ if violation.words.as_ref().is_some_and(|words| words.starts_with("kptr access")) => {
                violation.in_linux("kptr cannot be accessed indirectly by helper")
            }
            _ => violation,
        };
        if access != Access::Write {
            self.region(state, reg, value, 0, most, Intent::Read).map_err(outside)?;
        }
        let intent = if access == Access::Read { Intent::Read } else { Intent::Write };
        let (frame, first, last) = match self.region(state, reg, value, 0, most, intent).map_err(outside)? {
            Region::Stack { frame, first, last } => (frame, first, last),
            Region::Kptr { map, .. } => {
                // A call could copy a pointer: not even a whole one may be there.
                let def = self.map(map)?;
                let low = i64::from(value.offset);
                self.check_special(def, reg, value, (low, low + i64::from(most)), None)?;
                return Ok(None);
            }
            Region::Field { .. } | Region::Arena | Region::Memory => return Ok(None),
        };
        let end = last + most;
        if access != Access::Write {
            self.check_readable(state, frame, first, end).map_err(|violation| {
                let words = violation.words.clone().unwrap_or_default();
                match words.strip_prefix("invalid read from stack off ") {
                    Some(rest) => violation
                        .in_linux(format!("invalid indirect read from stack R{} off {rest}", reg.number())),
                    None => violation,
                }
            })?;
        }
        if access == Access::Read {
            // Without the ability, a pointer that a helper has read is a number afterwards.
            let stack = &state.frames()[usize::from(frame)].stack;
            let passed = !self.env.config.abilities.passed_pointers && stack.is_withheld(first, end);
            return Ok(passed.then_some(Filled { frame, start: first, end, sure: most }));
        }
        self.overwrite_by_call(state, proto, frame, first, end)?;
        self.end_copies(state, frame, first, end);
        let sure = if first == last { least } else { 0 };
        Ok(Some(Filled { frame, start: first, end, sure }))
    }

    /// Checks that no object of other calls is in the memory that a call fills.
    fn overwrite_by_call(
        &self,
        state: &State,
        proto: &HelperProto,
        frame: u8,
        start: u32,
        end: u32,
    ) -> Checked<()> {
        let stack = &state.frames()[usize::from(frame)].stack;
        if !stack.pointers.has_any(start, end) {
            return Ok(());
        }
        match stack.opaque_in(start, end) {
            None => Ok(()),
            Some(cell) => {
                let at = i64::from(cell.start) - i64::from(crate::domain::stack::STACK_BYTES);
                let text = format!("{} would overwrite a part of {} at r10{at:+}", proto.name, *cell.value);
                // Linux names the address that the call is given.
                let given = i64::from(start) - i64::from(crate::domain::stack::STACK_BYTES);
                let words = format!("potential write to dynptr at off={given} disallowed");
                Err(Violation::new(Code::Resource, text).in_linux(words))
            }
        }
    }

    /// The constant bytes of the map's value that `pointer` points into, if it is constant.
    fn constants(&self, pointer: &Value) -> Option<(&'a [u8], usize)> {
        let Kind::MapValue { map, maybe_null: false } = pointer.kind else { return None };
        let def = self.map(map).ok()?;
        let contents = def.contents()?;
        let variable = pointer.num.as_constant()? as i64;
        let at = usize::try_from(i64::from(pointer.offset).checked_add(variable)?).ok()?;
        Some((contents, at))
    }

    /// The number that a load from constant memory gives.
    pub(crate) fn constant_load(&self, pointer: &Value, offset: i16, size: Size) -> Option<Value> {
        let (bytes, at) = self.constants(pointer)?;
        let at = at.checked_add_signed(offset.into())?;
        let bytes = bytes.get(at..at.checked_add(size.bytes() as usize)?)?;
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        Some(Value::constant(u64::from_le_bytes(number)))
    }

    /// The string, without its end, that an argument points to in constant memory.
    pub(crate) fn constant_string(&self, who: &str, reg: Reg, value: &Value) -> Checked<&'a [u8]> {
        let refused = |why: &str| {
            let text = format!("{who} expects a constant string in {reg}, found {value}: {why}");
            Err(Violation::new(Code::Argument, text).suggest("put the string into a `const` variable"))
        };
        let Kind::MapValue { map, maybe_null: false } = value.kind else {
            return refused("it is not a value of a read-only map");
        };
        let def = self.map(map)?;
        if def.contents().is_none() {
            return refused(&format!("the contents of the map {} may change", def.name()));
        }
        let Some((bytes, at)) = self.constants(value) else {
            return refused("its offset is not constant");
        };
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.iter().position(|byte| *byte == 0) {
            Some(end) => Ok(&rest[..end]),
            None => refused("no zero byte terminates it"),
        }
    }
}
