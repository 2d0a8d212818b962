//! The generator's state at a point of the program: a small verifier state, so that most generated programs are
//! accepted.

use skep_isa::Reg;

/// The content of a register or an aligned 8-byte stack slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing readable.
    Unknown,
    /// A number.
    Number,
    /// An address with a known offset in its area.
    Address(Address),
}

/// The target of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) area: Area,
    /// Offset in bytes from the area's start; for the own frame from `r10`, negative.
    pub(super) offset: i32,
}

/// Memory that a function may use. All but the own frame is initialised throughout and holds numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    /// The function's own stack frame.
    Frame,
    /// A part of a caller's frame, or other memory that a caller passed.
    Lent(i32),
    /// The buffer.
    Buffer(i32),
    /// The packet's first bytes, after a comparison with its end.
    Packet(i32),
    /// A map's value.
    Value(i32),
}

impl Area {
    /// Its size; the own frame's is in the state.
    pub(super) fn bytes(self) -> i32 {
        match self {
            Self::Frame => 0,
            Self::Lent(bytes) | Self::Buffer(bytes) | Self::Packet(bytes) | Self::Value(bytes) => bytes,
        }
    }

    /// Whether the program may use atomic operations there: its base is aligned, and atomics are enabled.
    pub(super) fn allows_atomics(self) -> bool {
        !matches!(self, Self::Packet(_) | Self::Lent(_))
    }
}

/// An aligned 8-byte slot of the function's own frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The initialised bytes, one bit each.
    Bytes(u8),
    /// A spilled address.
    Spilled(Address),
    /// An iterator, which only its functions touch.
    Iterator,
}

/// The state at one point.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) regs: [Kind; 11],
    /// The frame, deepest slot first.
    pub(super) slots: Vec<Slot>,
    /// Registers that may not be changed at present.
    pub(super) pinned: Vec<Reg>,
    /// The number of open loops.
    pub(super) loops: u32,
    /// The number of open blocks, loops included.
    pub(super) depth: u32,
    /// Whether this is the main function outside of all loops and branches.
    pub(super) outermost: bool,
}

impl State {
    /// The state at a function's entry, with a frame of that many bytes.
    pub(super) fn new(frame: u32, outermost: bool) -> Self {
        let mut regs = [Kind::Unknown; 11];
        regs[10] = Kind::Address(Address { area: Area::Frame, offset: 0 });
        Self {
            regs,
            slots: vec![Slot::Bytes(0); frame as usize / 8],
            pinned: vec![Reg::R10],
            loops: 0,
            depth: 0,
            outermost,
        }
    }

    pub(super) fn kind(&self, reg: Reg) -> Kind {
        self.regs[reg.index()]
    }

    pub(super) fn set(&mut self, reg: Reg, kind: Kind) {
        self.regs[reg.index()] = kind;
    }

    pub(super) fn is_free(&self, reg: Reg) -> bool {
        !self.pinned.contains(&reg)
    }

    pub(super) fn numbers(&self) -> Vec<Reg> {
        Reg::ALL.into_iter().filter(|reg| self.kind(*reg) == Kind::Number).collect()
    }

    pub(super) fn addresses(&self) -> Vec<(Reg, Address)> {
        let address = |reg: Reg| match self.kind(reg) {
            Kind::Address(address) => Some((reg, address)),
            _ => None,
        };
        Reg::ALL.into_iter().filter_map(address).collect()
    }

    /// The size of the frame in bytes.
    pub(super) fn frame(&self) -> i32 {
        self.slots.len() as i32 * 8
    }

    /// A call clobbers `r1` to `r5`.
    pub(super) fn lose_arguments(&mut self) {
        for reg in &Reg::ALL[1..6] {
            self.set(*reg, Kind::Unknown);
        }
    }

    /// Invalidates all addresses into the packet.
    pub(super) fn lose_packet(&mut self) {
        for kind in &mut self.regs {
            if matches!(kind, Kind::Address(Address { area: Area::Packet(_), .. })) {
                *kind = Kind::Unknown;
            }
        }
        for slot in &mut self.slots {
            if matches!(slot, Slot::Spilled(Address { area: Area::Packet(_), .. })) {
                *slot = Slot::Bytes(0);
            }
        }
    }

    /// Whether all `bytes` bytes at `offset` from `r10` are initialised numbers.
    pub(super) fn is_initialised(&self, offset: i32, bytes: i32) -> bool {
        offset >= -self.frame()
            && offset + bytes <= 0
            && (offset..offset + bytes).all(|at| match self.slots[self.slot(at)] {
                Slot::Bytes(mask) => mask & 1 << at.rem_euclid(8) != 0,
                Slot::Spilled(_) | Slot::Iterator => false,
            })
    }

    /// Whether numbers may be written there: inside the frame, and not over a spilled address.
    pub(super) fn is_writable(&self, offset: i32, bytes: i32) -> bool {
        offset >= -self.frame()
            && offset + bytes <= 0
            && (offset..offset + bytes).all(|at| matches!(self.slots[self.slot(at)], Slot::Bytes(_)))
    }

    /// Marks bytes as initialised.
    pub(super) fn initialise(&mut self, offset: i32, bytes: i32) {
        for at in offset..offset + bytes {
            let slot = self.slot(at);
            if let Slot::Bytes(mask) = &mut self.slots[slot] {
                *mask |= 1 << at.rem_euclid(8);
            }
        }
    }

    /// The slot that contains the byte at `offset` from `r10`.
    pub(super) fn slot(&self, offset: i32) -> usize {
        ((offset + self.frame()) / 8) as usize
    }

    /// The state where two paths meet.
    pub(super) fn merge(mut self, other: &Self) -> Self {
        for (kind, other) in self.regs.iter_mut().zip(other.regs) {
            if *kind != other {
                *kind = Kind::Unknown;
            }
        }
        for (slot, other) in self.slots.iter_mut().zip(&other.slots) {
            *slot = match (*slot, *other) {
                (Slot::Bytes(a), Slot::Bytes(b)) => Slot::Bytes(a & b),
                (a, b) if a == b => a,
                _ => Slot::Bytes(0),
            };
        }
        self
    }
}
