//! The states of a walk by slot, to be compared with what a run really does.
//!
//! A mistake of the verifier stays hidden until some access relies on it: a range that misses a number does no harm by
//! itself. [`Recorded`] keeps the state before each walked instruction ([`crate::Config::max_recorded`]).
//! [`Recorded::check`] asks whether one of these states describes a machine as a run left it: every register and every
//! piece of stack that the state knows something about.
//!
//! ```text
//!   walk --every step--> states by slot
//!                             |
//!   run --every step--> Machine: registers, stacks, addresses --check--> some state describes it, or Mismatch
//! ```
//!
//! One state of a slot must match, since a slot is walked once for each path to it. A path that an earlier state
//! subsumes is not walked further: its runs are among those of the earlier state. A value that a state calls unreadable
//! may be anything, since no path from there reads it; so may a number on which no path from there relies, which is
//! forgotten once that is known ([`crate::explore::trail`]).

use crate::domain::needs::Needs;
use crate::domain::state::{Frame, State};
use crate::domain::value::{Kind, Trust, Value};
use skep_isa::Size;
use std::fmt;

/// The states of a walk.
#[derive(Default)]
pub struct Recorded {
    by_slot: Vec<Vec<State>>,
    states: usize,
    max: usize,
}

/// A machine in the middle of a run, before an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The slot of the instruction.
    pub slot: u32,
    /// The functions in progress, outermost first.
    pub frames: &'a [MachineFrame<'a>],
    /// Address of the context; 0 where there is none.
    pub context: u64,
    /// Where the packet is, if there is one.
    pub packet: Option<Packet>,
    /// The bytes that the host lends: number of the slice, first byte, one past the last.
    pub slices: &'a [(u8, u64, u64)],
    /// Address of the buffer.
    pub buffer: u64,
    /// The address that stands for each map in registers.
    pub maps: &'a [u64],
    /// Addresses of objects that the run has met.
    pub objects: &'a [(Object, u64)],
    /// The address that stands for each function in registers.
    pub functions: &'a [u64],
}

impl Machine<'_> {
    /// The first byte of a slice, and one past its last.
    fn slice(&self, number: u8) -> Option<(u64, u64)> {
        self.slices.iter().find(|(slice, ..)| *slice == number).map(|(_, start, end)| (*start, *end))
    }
}

/// A function in progress.
#[derive(Clone, Copy, Debug)]
pub struct MachineFrame<'a> {
    /// Its registers; of functions that wait for another one, `r6` to `r10` count.
    pub regs: &'a [u64; 11],
    /// The 512 bytes below its `r10`.
    pub stack: &'a [u8],
    /// Index of the function.
    pub function: u32,
    /// Slot of the call that made this frame; 0 in the first.
    pub call_slot: u32,
}

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Start of the metadata.
    pub meta: u64,
    /// Start of the packet.
    pub data: u64,
    /// One past its end.
    pub end: u64,
}

/// The object at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// A value of the map of that index.
    Value(u32),
    /// The key of an element of the map of that index, as a callback is given it.
    Key(u32),
    /// Memory that a helper returned.
    Memory,
}

/// A machine that no state of the walk describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The slot.
    pub slot: u32,
    /// How many states with the same calls the walk had there.
    pub states: usize,
    /// The first value outside of the nearest state; `None` if there is no state.
    pub nearest: Option<Outside>,
}

/// A value that a state does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Which register or piece of stack.
    pub place: Place,
    /// Index of the frame, outermost 0.
    pub frame: usize,
    /// What it is.
    pub real: u64,
    /// What the state allows.
    pub expected: String,
}

/// A register or a piece of stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The register of that number.
    Register(u8),
    /// The bytes of stack at that offset from `r10`.
    Stack(i32),
}

impl Recorded {
    pub(crate) fn new(slots: usize, max: usize) -> Self {
        Self { by_slot: std::iter::repeat_with(Vec::new).take(slots).collect(), states: 0, max }
    }

    /// Keeps a state; returns its number among those of the slot.
    pub(crate) fn take(&mut self, slot: usize, state: &State) -> u32 {
        self.states += 1;
        if self.states > self.max {
            self.by_slot.clear();
            return 0;
        }
        let mut copy = State::default();
        copy.copy_from(state);
        self.by_slot[slot].push(copy);
        self.by_slot[slot].len() as u32 - 1
    }

    /// The state of that number forgets all but this: a run may come to it with something else.
    pub(crate) fn forget(&mut self, slot: usize, number: usize, needs: &Needs) {
        let Some(state) = self.by_slot.get_mut(slot).and_then(|states| states.get_mut(number)) else {
            return;
        };
        for (frame, needs) in state.frames_mut().iter_mut().zip(&needs.0) {
            for (reg, value) in frame.regs.0.iter_mut().enumerate() {
                if value.is_scalar() && needs.regs & 1 << reg == 0 {
                    *value = Value::UNKNOWN;
                }
            }
            frame.stack.forget_numbers(needs.stack);
            frame.stack.forget_pointers(needs.read);
        }
    }

    /// How many states there are.
    pub fn states(&self) -> usize {
        self.states
    }

    /// Whether all states were kept. If there were too many, none are kept and every machine passes.
    pub fn is_complete(&self) -> bool {
        self.states <= self.max
    }

    /// Checks that some state describes the machine.
    ///
    /// # Errors
    ///
    /// The first value outside of the state that agrees with the machine longest.
    pub fn check(&self, machine: &Machine<'_>) -> Result<(), Mismatch> {
        let Some(states) = self.by_slot.get(machine.slot as usize) else { return Ok(()) };
        let mut found = Mismatch { slot: machine.slot, states: 0, nearest: None };
        let mut farthest = 0;
        // The last iterations of a loop are walked last, and run last.
        for state in states {
            let Some(view) = View::of(state, machine) else { continue };
            found.states += 1;
            match view.holds() {
                Ok(()) => return Ok(()),
                Err((passed, outside)) => {
                    if found.nearest.is_none() || passed > farthest {
                        (farthest, found.nearest) = (passed, Some(outside.told()));
                    }
                }
            }
        }
        Err(found)
    }
}

/// A state beside a machine in the same calls.
struct View<'a> {
    frames: &'a [Frame],
    machine: &'a Machine<'a>,
    /// How many of the machine's frames lie below those that the state knows.
    below: usize,
}

/// As [`Outside`], not told yet.
struct Found<'a> {
    place: Place,
    frame: usize,
    real: u64,
    value: &'a Value,
}

impl Found<'_> {
    fn told(&self) -> Outside {
        let expected = self.value.to_string();
        Outside { place: self.place, frame: self.frame, real: self.real, expected }
    }
}

const ZERO: Value = Value::constant(0);

impl<'a> View<'a> {
    /// A function that is walked by itself knows nothing about its callers.
    fn of(state: &'a State, machine: &'a Machine<'a>) -> Option<Self> {
        let frames = state.frames();
        let below = machine.frames.len().checked_sub(frames.len())?;
        let same =
            frames[1..].iter().zip(&machine.frames[below + 1..]).all(|(a, b)| a.call_slot == b.call_slot);
        let outermost = below == 0 || machine.frames.get(below)?.function == frames[0].function;
        (same && outermost).then_some(Self { frames, machine, below })
    }

    /// Whether everything is as the state says; else how many values were, and the first that is not.
    fn holds(&self) -> Result<(), (usize, Found<'a>)> {
        let mut passed = 0;
        let last = self.frames.len() - 1;
        for (at, frame) in self.frames.iter().enumerate().rev() {
            let real = &self.machine.frames[self.below + at];
            let regs = if at == last { 0..10 } else { 6..10 };
            let index = self.below + at;
            for reg in regs {
                let value = &frame.regs.0[reg];
                if !self.contains(value, real.regs[reg]) {
                    let place = Place::Register(reg as u8);
                    return Err((passed, Found { place, frame: index, real: real.regs[reg], value }));
                }
                passed += usize::from(value.is_readable());
            }
            let place = |start: u32| Place::Stack(start as i32 - 512);
            for cell in &frame.stack.cells {
                let Some(size) = Size::from_bytes(cell.size.into()) else { continue };
                let Some(number) = number(real.stack, cell.start.into(), size) else { continue };
                if !self.contains(&cell.value, number) {
                    let place = place(cell.start.into());
                    return Err((passed, Found { place, frame: index, real: number, value: &cell.value }));
                }
                passed += 1;
            }
            let wrong = frame.stack.zero.iter().find(|byte| real.stack.get(*byte as usize) != Some(&0));
            if let Some(byte) = wrong {
                let number = real.stack.get(byte as usize).copied().unwrap_or_default();
                let found = Found { place: place(byte), frame: index, real: number.into(), value: &ZERO };
                return Err((passed, found));
            }
        }
        Ok(())
    }

    fn contains(&self, value: &Value, real: u64) -> bool {
        let machine = self.machine;
        if value.is_maybe_null() && real == 0 {
            return true;
        }
        let from = |start: u64| value.num.contains(self.distance(value, real, start));
        let object =
            |wanted: Object| machine.objects.iter().any(|(object, start)| *object == wanted && from(*start));
        match value.kind {
            Kind::Uninit | Kind::Clobbered { .. } | Kind::Stale { .. } => true,
            Kind::Scalar => value.num.contains(real),
            Kind::Context => from(machine.context),
            Kind::Stack { frame } => {
                let frame = self.below + usize::from(frame);
                machine.frames.get(frame).is_some_and(|frame| from(frame.regs[10]))
            }
            Kind::Packet => machine.packet.is_some_and(|packet| {
                from(packet.data) && self.in_range(value, real, packet.data, packet.end)
            }),
            Kind::PacketMeta => machine.packet.is_some_and(|packet| {
                from(packet.meta) && self.in_range(value, real, packet.meta, packet.data)
            }),
            Kind::PacketEnd => machine.packet.is_some_and(|packet| from(packet.end)),
            Kind::Slice { slice, .. } => machine
                .slice(slice)
                .is_some_and(|(start, end)| from(start) && self.in_range(value, real, start, end)),
            Kind::SliceEnd { slice } => machine.slice(slice).is_some_and(|(_, end)| from(end)),
            Kind::PacketHalf => real <= u64::from(u32::MAX),
            Kind::Map { map } => machine.maps.get(map as usize) == Some(&real),
            Kind::MapValue { map, .. } => object(Object::Value(map)),
            Kind::Buffer { .. } => from(machine.buffer),
            Kind::MapKey { map } => object(Object::Key(map)),
            Kind::Memory { .. } => object(Object::Memory),
            Kind::Function { function } => machine.functions.get(function as usize) == Some(&real),
            // Found by following pointers: it leads anywhere, and is 0 where the load faulted.
            Kind::Object { trust: Trust::Walked | Trust::Untrusted | Trust::PerCpu, .. } => true,
            Kind::InnerMap { .. } | Kind::Struct { .. } | Kind::Object { .. } => {
                real != 0 || value.is_maybe_null()
            }
            // Any number means some byte of it.
            Kind::Arena => true,
            // No engine runs programs that allocate objects yet.
            Kind::Own { .. } => true,
            // Only helpers know its contents.
            Kind::Opaque { .. } => true,
        }
    }

    /// The variable part of a pointer into the object at `start`.
    fn distance(&self, value: &Value, real: u64, start: u64) -> u64 {
        real.wrapping_sub(start).wrapping_sub(i64::from(value.offset) as u64)
    }

    /// Whether the bytes that a packet pointer's range says are there lie before `end`.
    fn in_range(&self, value: &Value, real: u64, start: u64, end: u64) -> bool {
        let base = start.wrapping_add(self.distance(value, real, start));
        value.range == 0 || base.checked_add(value.range.into()).is_some_and(|last| last <= end)
    }
}

/// The number in the stack at `start`.
fn number(stack: &[u8], start: u32, size: Size) -> Option<u64> {
    let bytes = stack.get(start as usize..(start + size.bytes()) as usize)?;
    let mut number = [0; 8];
    number[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("states", &self.states).finish_non_exhaustive()
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            None => write!(f, "instruction {} was never walked with these calls", self.slot),
            Some(outside) => write!(
                f,
                "before instruction {} {outside}, and none of {} walked states holds",
                self.slot, self.states
            ),
        }
    }
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frame, real, expected, .. } = self;
        match self.place {
            Place::Register(reg) => write!(f, "r{reg} of frame {frame} is {real:#x}, outside of {expected}"),
            Place::Stack(offset) => {
                write!(f, "the stack of frame {frame} at {offset} is {real:#x}, outside of {expected}")
            }
        }
    }
}
