//! Printing helpers: constant formats, and what is proved about the values.
//!
//! A helper that prints takes numbers, some of them addresses of strings. It follows only addresses that are proved
//! here to point to memory of the program, reads no further than was proved, and shows no address. What is proved is
//! the least over all paths to the call ([`Printed`]). As in Linux, a wrong value is no reason to refuse. Numbers are
//! shown as they are, also those of programs that may let addresses out as numbers: the log is one more way out.

use crate::domain::stack::STACK_BYTES;
use crate::domain::state::ARGS;
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::args::expected;
use crate::step::notes::Note;
use crate::step::object::MAX_ELEMENT;
use crate::step::region::{Intent, Region};
use skep_abi::{Access, ArgKind, HelperProto, Printable, Printed, parse_format};
use skep_isa::{Reg, Size};

/// Bytes of a value.
const VALUE_BYTES: u32 = 8;

impl Transfer<'_> {
    /// Records what is proved about values printed from registers.
    pub(crate) fn print_registers(&mut self, state: &State, proto: &HelperProto) {
        let printed = |arg: &ArgKind| *arg == ArgKind::Printed;
        if !proto.args.iter().any(printed) {
            return;
        }
        let mut note = Printed::default();
        let regs = ARGS.iter().zip(&proto.args).filter(|(_, arg)| printed(arg)).map(|(reg, _)| *reg);
        for (reg, place) in regs.zip(&mut note.values) {
            let value = *state.reg(reg);
            *place = self.printable(state, reg, &value);
        }
        self.record.printed(self.slot, note);
    }

    /// Checks a constant format. The size of the values is the second argument after it.
    pub(crate) fn format_argument(
        &mut self,
        state: &State,
        proto: &HelperProto,
        at: usize,
        value: &Value,
    ) -> Checked<()> {
        let format = self.constant_string(&proto.name, ARGS[at], value)?;
        let Some(size) = ARGS.get(at + 2).copied() else {
            let text = format!("the prototype of {} names a format without values", proto.name);
            return Err(Violation::new(Code::Unsupported, text));
        };
        let bytes = self.read(state, size)?;
        // Of a size that varies, what is the same in every run: so Linux counts.
        let known = bytes.num.bits.value;
        if known % u64::from(VALUE_BYTES) != 0 {
            return Err(expected(proto, size, "a multiple of 8 bytes of values", &bytes));
        }
        parse_format(format, (known / u64::from(VALUE_BYTES)) as usize).map(|_| ()).map_err(|error| {
            let text = format!("{} is given an invalid format: {error}", proto.name);
            let remedy = "conversions are %d %i %u %x %X with l or ll, %c, %s, %p, %px, %pK, %ps, %pS, %pB, %pks, \
                          %pus, %pi4, %pI4, %pi6, %pI6";
            Violation::new(Code::Argument, text).suggest(remedy).in_linux("Invalid format string")
        })
    }

    /// Checks an array of values, and records what is proved about them.
    pub(crate) fn values_argument(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        reg: Reg,
        value: &Value,
        sizes: (u32, u32),
    ) -> Checked<()> {
        let (_, most) = sizes;
        let count = (most / VALUE_BYTES) as usize;
        // The same call may print fewer values on another path.
        let mut note = Printed::default();
        note.values.iter_mut().skip(count).for_each(|place| *place = Printable::Absent);
        let stack = match value.kind {
            Kind::Stack { frame } if value.is_fixed() => Some(frame),
            _ => None,
        };
        match stack {
            Some(frame) => {
                let Region::Stack { first, .. } = self.region(state, reg, value, 0, most, Intent::Read)?
                else {
                    return Err(expected(proto, reg, "memory", value));
                };
                for at in 0..most / VALUE_BYTES {
                    let start = first + at * VALUE_BYTES;
                    let printable = self.value_in_stack(state, reg, frame, start)?;
                    if let Some(place) = note.values.get_mut(at as usize) {
                        *place = printable;
                    }
                }
                self.check_readable(state, frame, first + most / VALUE_BYTES * VALUE_BYTES, first + most)?;
            }
            None => {
                self.memory(state, proto, reg, value, sizes, Access::Read)?;
                note.values.iter_mut().take(count).for_each(|place| *place = Printable::Number);
            }
        }
        self.record.printed(self.slot, note);
        Ok(())
    }

    /// What is proved about the eight bytes there.
    fn value_in_stack(&mut self, state: &State, reg: Reg, frame: u8, start: u32) -> Checked<Printable> {
        let stack = &state.frames()[usize::from(frame)].stack;
        if let Some(cell) = stack.whole_cell(start, Size::B8)
            && cell.value.is_pointer()
            && !matches!(cell.value.kind, Kind::Opaque { .. })
        {
            let value = *cell.value;
            return Ok(self.printable(state, reg, &value));
        }
        let hidden = stack.is_withheld(start, start + VALUE_BYTES);
        self.check_readable(state, frame, start, start + VALUE_BYTES)?;
        Ok(if hidden { Printable::Hidden } else { Printable::Number })
    }

    /// What is proved about a value.
    fn printable(&mut self, state: &State, reg: Reg, value: &Value) -> Printable {
        if value.is_scalar() {
            return Printable::Number;
        }
        match self.bytes_behind(state, reg, value) {
            Some(bytes) if bytes > 0 => match self.constant_string("", reg, value) {
                Ok(_) => Printable::String { bytes },
                Err(_) => Printable::Memory { bytes },
            },
            _ => Printable::Hidden,
        }
    }

    /// How many bytes may be read there at least without reading a part of an address.
    fn bytes_behind(&mut self, state: &State, reg: Reg, value: &Value) -> Option<u32> {
        let mut pointer = *value;
        // Null is not followed.
        match &mut pointer.kind {
            // How much there is of an element is not known yet.
            Kind::Memory { bytes: MAX_ELEMENT, .. } => return None,
            Kind::MapValue { maybe_null, .. } | Kind::Memory { maybe_null, .. } => *maybe_null = false,
            Kind::Stack { .. }
            | Kind::MapKey { .. }
            | Kind::Packet
            | Kind::PacketMeta
            | Kind::Slice { .. }
            | Kind::Buffer { .. } => {}
            _ => return None,
        }
        let region = self.region(state, reg, &pointer, 0, 1, Intent::Read).ok()?;
        let from = i64::from(pointer.offset).checked_add(pointer.num.smin)?;
        let last = i64::from(pointer.offset).checked_add(pointer.num.smax)?;
        let end = match (region, pointer.kind) {
            (Region::Stack { frame, first, last }, _) => {
                return self.bytes_of_stack(state, frame, first, last);
            }
            (Region::Memory, Kind::MapValue { map, .. }) => {
                let def = self.map(map).ok()?;
                let behind = |field: &&skep_abi::SpecialField| i64::from(field.offset + field.size) > from;
                let field = def.fields().iter().filter(behind).map(|field| field.offset).min();
                i64::from(def.value_size().min(field.unwrap_or(u32::MAX)))
            }
            (Region::Memory, Kind::MapKey { map }) => self.map(map).ok()?.key_size().into(),
            (Region::Memory, Kind::Memory { bytes, .. } | Kind::Buffer { bytes }) => bytes.into(),
            // The range belongs to the pointer with its variable part.
            (Region::Memory, Kind::Packet | Kind::PacketMeta | Kind::Slice { .. }) => {
                return u32::try_from(i64::from(pointer.range) - i64::from(pointer.offset)).ok();
            }
            _ => return None,
        };
        u32::try_from(end - last).ok()
    }

    /// The same for an address in `first..=last` of a stack: up to possible remains of a pointer.
    fn bytes_of_stack(&mut self, state: &State, frame: u8, first: u32, last: u32) -> Option<u32> {
        self.notes.add(Note::Takes { frame, start: first, end: STACK_BYTES });
        let frame = &state.frames()[usize::from(frame)];
        let withheld = |at: &u32| frame.stack.is_withheld(*at, at + 1);
        let end = (first..STACK_BYTES).find(withheld).unwrap_or(STACK_BYTES);
        if end <= last {
            return None;
        }
        if !frame.stack.init.has_all(first, end) {
            self.record.unwritten(frame.function);
        }
        Some(end - last)
    }
}
