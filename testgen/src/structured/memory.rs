//! Statements over memory: loads, stores, atomics, and addresses themselves.

use skep_isa::{AluOp, AtomicOp, Insn, Operand, Reg, Size, Width};

use super::Generator;
use super::state::{Address, Area, Kind, Slot, State};

/// The deepest slots of each frame hold no addresses, so that there is always memory to pass to callees.
pub(super) const NEVER_SPILLED: usize = 3;

/// A memory operand of an instruction.
#[derive(Clone, Copy)]
struct Place {
    base: Reg,
    /// Offset from the base register.
    offset: i16,
    /// Offset from `r10`, for the function's own frame.
    frame: Option<i32>,
}

/// The kind of access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    Atomic,
}

impl Generator<'_> {
    pub(super) fn load(&mut self, state: &mut State) {
        let size = self.source.pick(&Size::ALL);
        let Some(place) = self.place(state, size, Use::Read) else { return self.store(state) };
        let dst = self.destination(state);
        let Place { base, offset, .. } = place;
        let signed = size != Size::B8 && self.source.chance(35);
        self.code.push(Insn::Load { size, signed, dst, base, offset });
        state.set(dst, Kind::Number);
    }

    pub(super) fn store(&mut self, state: &mut State) {
        let size = self.source.pick(&Size::ALL);
        let Some(Place { base, offset, frame }) = self.place(state, size, Use::Write) else {
            return self.arithmetic(state);
        };
        let src = self.operand(state);
        self.code.store(size, base, offset, src);
        if let Some(at) = frame {
            state.initialise(at, size.bytes() as i32);
        }
    }

    /// Atomic read-modify-write, load-acquire, store-release.
    pub(super) fn atomic(&mut self, state: &mut State) {
        let op = self.source.pick(&AtomicOp::ALL);
        let ordered = self.source.chance(30);
        let size = match ordered {
            true => self.source.pick(&Size::ALL),
            false => self.source.pick(&[Size::B4, Size::B8]),
        };
        // Numbers first: making one may overwrite an address register.
        if op == AtomicOp::CmpXchg && !ordered && state.kind(Reg::R0) != Kind::Number {
            self.number_into(state, Reg::R0);
        }
        let src = self.number(state, true);
        let Some(Place { base, offset, .. }) = self.place(state, size, Use::Atomic) else {
            return self.store(state);
        };
        if !ordered {
            self.code.push(Insn::Atomic { op, size, base, offset, src });
        } else if self.source.chance(50) {
            self.code.push(Insn::StoreRelease { size, base, offset, src });
        } else {
            self.code.push(Insn::LoadAcquire { size, dst: src, base, offset });
        }
    }

    /// A load or a store at a variable offset, masked or compared so that it stays in range.
    pub(super) fn variable_access(&mut self, state: &mut State) {
        let number = self.number(state, false);
        let candidates: Vec<(Reg, Address)> = state
            .addresses()
            .into_iter()
            .filter(|(_, address)| match address.area {
                Area::Frame | Area::Packet(_) => false,
                area => area.bytes() - address.offset >= 8 && address.offset >= 0,
            })
            .collect();
        if candidates.is_empty() {
            return self.load(state);
        }
        let (base, address) = self.source.pick(&candidates);
        let room = address.area.bytes() - address.offset;
        let size = self.source.pick(&Size::ALL);
        let bytes = size.bytes() as i32;
        // The greatest variable offset is room - bytes; masks are a power of two minus one.
        let limit = (room - bytes) as u32;
        if self.options.linux && (address.offset % bytes != 0 || matches!(address.area, Area::Lent(_))) {
            return self.load(state);
        }
        let mask = (limit + 1).next_power_of_two() >> u32::from(!(limit + 1).is_power_of_two());
        let Some(temporary) = self.temporary(state, base) else { return };
        self.code.mov(temporary, number);
        state.set(temporary, Kind::Unknown);
        let skip = match self.source.below(4) {
            0 | 1 => {
                let width = self.width();
                self.code.alu(width, AluOp::And, temporary, Operand::Imm(mask as i32 - 1));
                None
            }
            2 => {
                let count = (64 - mask.trailing_zeros() as i32).min(63);
                self.code.alu(Width::W64, AluOp::Rsh, temporary, Operand::Imm(count));
                if mask == 1 {
                    self.code.alu(Width::W64, AluOp::And, temporary, Operand::Imm(0));
                }
                None
            }
            _ => {
                let over = skep_isa::Cond::Gt;
                Some(self.code.jump_if(Width::W64, over, temporary, Operand::Imm(limit as i32)))
            }
        };
        self.code.alu(Width::W64, AluOp::Add, temporary, Operand::Reg(base));
        if skip.is_some() || self.source.chance(50) {
            let src = self.operand(state);
            self.code.store(size, temporary, 0, src);
        } else {
            self.code.load(size, temporary, temporary, 0);
            state.set(temporary, Kind::Number);
        }
        if let Some(open) = skip {
            self.code.land(open);
        }
    }

    /// A load or a store in the packet at a variable offset: the sum is compared with the packet's end again, as
    /// verifiers require.
    pub(super) fn variable_packet_access(&mut self, state: &mut State) {
        let number = self.number(state, false);
        let starts: Vec<Reg> = state
            .addresses()
            .into_iter()
            .filter_map(|(reg, address)| matches!(address.area, Area::Packet(_)).then_some(reg))
            .collect();
        let spare: Vec<Reg> = Reg::ALL
            .into_iter()
            .filter(|reg| state.is_free(*reg) && state.kind(*reg) == Kind::Unknown)
            .collect();
        let (Some(&base), [at, limit, end, ..]) = (starts.first(), &spare[..]) else {
            return self.load(state);
        };
        let (at, limit, end) = (*at, *limit, *end);
        let size = self.source.pick(&Size::ALL);
        let mask = self.source.pick(&[7, 31, 63, 127]);
        self.code.mov(at, number);
        self.code.alu(Width::W64, AluOp::And, at, Operand::Imm(mask));
        self.code.alu(Width::W64, AluOp::Add, at, Operand::Reg(base));
        self.code.mov(limit, at);
        self.code.add_imm(limit, size.bytes() as i32);
        let (_, end_at) = self.packet_fields();
        self.code.load(Size::B4, end, Reg::R6, end_at);
        let over = self.code.jump_if(Width::W64, skep_isa::Cond::Gt, limit, Operand::Reg(end));
        let src = self.operand(state);
        self.code.store(size, at, 0, src);
        self.code.land(over);
    }

    /// Copies an address, or moves it by a constant.
    pub(super) fn move_address(&mut self, state: &mut State) {
        let addresses = state.addresses();
        let (src, address) = self.source.pick(&addresses);
        let dst = self.destination(state);
        if state.loops > 0 && matches!(state.kind(dst), Kind::Number) {
            return self.arithmetic(state);
        }
        let (low, high) = match address.area {
            Area::Frame => (-state.frame(), 0),
            area => (0, area.bytes()),
        };
        let target = low + self.source.below((high - low) as u32 + 1) as i32;
        let by = target - address.offset;
        self.code.mov(dst, src);
        if by != 0 {
            let may_subtract = !(self.options.linux && address.area == Area::Frame);
            let (op, by) = match self.source.chance(40) && may_subtract {
                true => (AluOp::Sub, -by),
                false => (AluOp::Add, by),
            };
            self.code.alu(Width::W64, op, dst, Operand::Imm(by));
        }
        state.set(dst, Kind::Address(Address { offset: target, ..address }));
    }

    /// Spills an address or a number, or fills an address.
    pub(super) fn spill_or_fill(&mut self, state: &mut State) {
        let spilled: Vec<(usize, Address)> = state
            .slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| match slot {
                Slot::Spilled(address) => Some((at, *address)),
                Slot::Bytes(_) | Slot::Iterator => None,
            })
            .collect();
        let offset = |state: &State, slot: usize| (slot as i32 * 8 - state.frame()) as i16;
        if !spilled.is_empty() && self.source.chance(60) {
            let (slot, address) = self.source.pick(&spilled);
            let dst = self.destination(state);
            if state.loops > 0 && state.kind(dst) == Kind::Number {
                return;
            }
            self.code.load(Size::B8, dst, Reg::R10, offset(state, slot));
            state.set(dst, Kind::Address(address));
            return;
        }
        let addresses: Vec<(Reg, Address)> =
            state.addresses().into_iter().filter(|(reg, _)| *reg != Reg::R10).collect();
        if addresses.is_empty() || state.loops > 0 {
            return self.load(state);
        }
        let (src, address) = self.source.pick(&addresses);
        let slots = state.slots.len() as u32 - NEVER_SPILLED as u32;
        if slots == 0 {
            return self.load(state);
        }
        let slot = NEVER_SPILLED + self.source.below(slots) as usize;
        self.code.store(Size::B8, Reg::R10, offset(state, slot), Operand::Reg(src));
        state.slots[slot] = Slot::Spilled(address);
    }

    /// A memory operand of that size in some area that allows the access.
    fn place(&mut self, state: &State, size: Size, how: Use) -> Option<Place> {
        let addresses = state.addresses();
        let bytes = size.bytes() as i32;
        for _ in 0..4 {
            let (base, address) = self.source.pick(&addresses);
            let (low, high) = match address.area {
                Area::Frame => (-state.frame(), -bytes),
                area => (0, area.bytes() - bytes),
            };
            if high < low || (how == Use::Atomic && !address.area.allows_atomics()) {
                continue;
            }
            let mut target = low + self.source.below((high - low) as u32 + 1) as i32;
            let may_be_crooked = how != Use::Atomic
                && match address.area {
                    Area::Frame => false,
                    Area::Lent(_) => !self.options.linux,
                    _ => true,
                };
            if !(may_be_crooked && self.source.chance(25)) {
                target = target.div_euclid(bytes) * bytes;
            }
            let frame = (address.area == Area::Frame).then_some(target);
            let usable = match (frame, how) {
                (None, _) => true,
                (Some(at), Use::Write) => state.is_writable(at, bytes),
                (Some(at), _) => state.is_initialised(at, bytes),
            };
            if usable && target >= low {
                let offset = (target - address.offset) as i16;
                return Some(Place { base, offset, frame });
            }
        }
        None
    }

    /// A register for a variable address: neither the base nor a register that a loop's head needs.
    fn temporary(&mut self, state: &State, base: Reg) -> Option<Reg> {
        let fits = |reg: &Reg| {
            *reg != base
                && state.is_free(*reg)
                && match state.kind(*reg) {
                    Kind::Unknown => true,
                    Kind::Number => state.numbers().len() > 1,
                    Kind::Address(_) => false,
                }
        };
        let regs: Vec<Reg> = Reg::ALL.into_iter().filter(fits).collect();
        (!regs.is_empty()).then(|| self.source.pick(&regs))
    }
}
