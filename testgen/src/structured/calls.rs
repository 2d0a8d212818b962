//! Calls: of subprograms, of helpers, of look-ups.

use skep_abi::MapKind;
use skep_isa::{Cond, Imm64, Insn, Operand, Reg, Size, Width};

use super::Generator;
use super::state::{Address, Area, Kind, Slot, State};
use crate::builder::Open;
use crate::helpers::{ADJUST_HEAD, CPU_NUMBER, FILL, LOOKUP, MIX, REVERSE, SMALL, SUM};
use crate::program::{ARRAY, GLOBALS, OUTER, PERCPU, TABLE, inner, maps};
use crate::source::Source;

/// The arguments of a function.
#[derive(Clone, Debug)]
pub(super) struct Signature(Vec<Argument>);

#[derive(Clone, Copy, Debug)]
enum Argument {
    Number,
    /// The address of that many bytes, a multiple of 8.
    Memory(i32),
}

impl Signature {
    pub(super) fn random(source: &mut Source) -> Self {
        let argument = |source: &mut Source| match source.below(3) {
            0 => Argument::Memory(8 * source.between(1, 3) as i32),
            _ => Argument::Number,
        };
        Self((0..source.below(6)).map(|_| argument(source)).collect())
    }

    /// The state at the function's entry.
    pub(super) fn enter(&self, state: &mut State) {
        for (argument, reg) in self.0.iter().zip(&Reg::ALL[1..]) {
            state.set(
                *reg,
                match *argument {
                    Argument::Number => Kind::Number,
                    Argument::Memory(bytes) => Kind::Address(Address { area: Area::Lent(bytes), offset: 0 }),
                },
            );
        }
    }
}

impl Generator<'_> {
    /// Calls a function of the program.
    pub(super) fn call(&mut self, state: &mut State, callee: usize) {
        let signature = self.signatures[callee].clone();
        for (argument, reg) in signature.0.iter().zip(&Reg::ALL[1..]) {
            match *argument {
                Argument::Number => self.pass_number(state, *reg),
                Argument::Memory(bytes) => self.pass_memory(state, *reg, bytes, true),
            }
        }
        self.calls.push((self.code.here(), callee));
        self.code.push(Insn::Exit); // replaced once the callee's slot is known
        self.after_call(state, Kind::Number);
    }

    /// One more call of a later function; rare, because a verifier walks it again each time.
    pub(super) fn extra_call(&mut self, state: &mut State, number: usize) {
        let later = (self.signatures.len() - 1).saturating_sub(number);
        if later == 0 || self.extra_calls == 0 || state.loops > 1 {
            return self.arithmetic(state);
        }
        self.extra_calls -= 1;
        let callee = number + 1 + self.source.below(later as u32) as usize;
        self.call(state, callee);
    }

    /// Calls one of the host's helpers.
    pub(super) fn helper(&mut self, state: &mut State) {
        match self.source.below(6) {
            0 => {
                for reg in &Reg::ALL[1..6] {
                    self.pass_number(state, *reg);
                }
                self.code.call_helper(MIX);
                self.after_call(state, Kind::Number);
            }
            1 => {
                let bytes = self.source.pick(&[8, 16]);
                self.pass_memory(state, Reg::R1, bytes, true);
                let passed = bytes - self.source.below(8) as i32;
                self.code.mov_imm(Reg::R2, passed);
                self.pass_number(state, Reg::R3);
                self.code.call_helper(SUM);
                self.after_call(state, Kind::Number);
            }
            2 => {
                let bytes = self.source.pick(&[8, 16]);
                self.pass_memory(state, Reg::R1, bytes, false);
                self.code.mov_imm(Reg::R2, bytes);
                state.set(Reg::R2, Kind::Number);
                self.pass_number(state, Reg::R3);
                self.code.call_helper(FILL);
                if let Kind::Address(Address { area: Area::Frame, offset }) = state.kind(Reg::R1) {
                    state.initialise(offset, bytes);
                }
                self.after_call(state, Kind::Unknown);
            }
            3 => {
                self.pass_number(state, Reg::R1);
                self.code.call_helper(SMALL);
                self.after_call(state, Kind::Number);
            }
            4 => {
                self.code.call_helper(CPU_NUMBER);
                self.after_call(state, Kind::Number);
            }
            _ => {
                self.pass_memory(state, Reg::R1, 16, true);
                self.code.call_helper(REVERSE);
                self.after_call(state, Kind::Number);
            }
        }
    }

    /// A look-up with its null check and a few statements over the value; or the direct address of one.
    pub(super) fn map(&mut self, state: &mut State, number: usize) {
        let maps = maps();
        if self.source.chance(30) {
            let dst = self.destination(state);
            if state.loops > 0 && state.kind(dst) == Kind::Number {
                return;
            }
            let bytes = maps[GLOBALS as usize].value_size as i32;
            let offset = self.source.below(bytes as u32);
            self.code.load_imm64(dst, Imm64::MapValue { map: GLOBALS, offset });
            let address = Address { area: Area::Value(bytes), offset: offset as i32 };
            return state.set(dst, Kind::Address(address));
        }
        let map = match self.options.control && self.source.chance(25) {
            true => OUTER,
            false => self.source.pick(&[ARRAY, ARRAY, GLOBALS, PERCPU, TABLE]),
        };
        let inner = inner();
        let def = if map == OUTER { &inner } else { &maps[map as usize] };
        let Some(key) = self.free_slot(state) else { return self.arithmetic(state) };
        let no_map = (map == OUTER).then(|| self.find_map(state, key));
        // The key: a constant in range or just out of range, or any number.
        let size = if def.kind == MapKind::Hash { Size::B8 } else { Size::B4 };
        let value = match self.source.below(3) {
            0 => self.operand(state),
            _ => Operand::Imm(self.source.below(def.max_entries + 1) as i32),
        };
        self.code.store(size, Reg::R10, key as i16, value);
        state.initialise(key, size.bytes() as i32);
        self.code.mov(Reg::R2, Reg::R10);
        self.code.add_imm(Reg::R2, key);
        if map != OUTER {
            self.code.load_imm64(Reg::R1, Imm64::Map(map));
        }
        self.code.call_helper(LOOKUP);
        self.after_call(state, Kind::Unknown);

        let value = match self.source.pick(&[Reg::R0, Reg::R7, Reg::R8, Reg::R9]) {
            reg if reg != Reg::R0 && state.is_free(reg) && state.loops == 0 => {
                self.code.mov(reg, Reg::R0);
                state.set(reg, Kind::Unknown);
                reg
            }
            _ => Reg::R0,
        };
        let tested = if self.source.chance(30) { Reg::R0 } else { value };
        let null = self.code.jump_if(Width::W64, Cond::Eq, tested, Operand::Imm(0));
        let mut found = self.inner(state);
        found.set(value, Kind::Address(Address { area: Area::Value(def.value_size as i32), offset: 0 }));
        self.block(&mut found, number);
        self.code.land(null);
        if let Some(no_map) = no_map {
            self.code.land(no_map);
        }
        let missing = state.clone();
        self.join(state, &found, &missing);
    }

    /// A look-up in the array of maps, by the key in that slot: `r1` is the inner map. If there is none, the jump is
    /// taken with `r0` = 0.
    pub(super) fn find_map(&mut self, state: &mut State, key: i32) -> Open {
        // Most indices are in range.
        let index = self.source.below(5) as i32;
        self.code.store(Size::B4, Reg::R10, key as i16, Operand::Imm(index));
        state.initialise(key, 4);
        self.code.mov(Reg::R2, Reg::R10);
        self.code.add_imm(Reg::R2, key);
        self.code.load_imm64(Reg::R1, Imm64::Map(OUTER));
        self.code.call_helper(LOOKUP);
        self.after_call(state, Kind::Unknown);
        let none = self.code.jump_if(Width::W64, Cond::Eq, Reg::R0, Operand::Imm(0));
        self.code.mov(Reg::R1, Reg::R0);
        none
    }

    /// Moves the packet's head, and finds the packet again.
    pub(super) fn move_packet(&mut self, state: &mut State) {
        if !self.options.helpers {
            return self.arithmetic(state);
        }
        self.code.mov(Reg::R1, Reg::R6);
        let delta = self.source.below(33) as i32 - 16;
        self.code.mov_imm(Reg::R2, delta);
        self.code.call_helper(ADJUST_HEAD);
        self.after_call(state, Kind::Number);
        state.lose_packet();
        self.packet(state);
    }

    pub(super) fn after_call(&mut self, state: &mut State, result: Kind) {
        state.lose_arguments();
        state.set(Reg::R0, result);
    }

    pub(super) fn pass_number(&mut self, state: &mut State, reg: Reg) {
        match self.operand(state) {
            Operand::Reg(src) => self.code.mov(reg, src),
            Operand::Imm(imm) => self.code.mov_imm(reg, imm),
        }
        state.set(reg, Kind::Number);
    }

    /// The address of `bytes` bytes, initialised if they are read.
    fn pass_memory(&mut self, state: &mut State, reg: Reg, bytes: i32, read: bool) {
        let elsewhere: Vec<(Reg, Address)> = state
            .addresses()
            .into_iter()
            .filter(|(base, address)| {
                let safe = base.number() == 0 || base.number() > 5;
                safe && address.area != Area::Frame && address.area.bytes() >= bytes
            })
            .collect();
        if !elsewhere.is_empty() && self.source.chance(40) {
            let (base, address) = self.source.pick(&elsewhere);
            let target = self.source.below((address.area.bytes() - bytes) as u32 + 1) as i32;
            self.code.mov(reg, base);
            self.code.add_imm(reg, target - address.offset);
            return state.set(reg, Kind::Address(Address { offset: target, ..address }));
        }
        self.pass_stack(state, reg, bytes, read);
    }

    /// The same for the function's own frame.
    pub(super) fn pass_stack(&mut self, state: &mut State, reg: Reg, bytes: i32, read: bool) {
        // A window of slots without addresses and iterators; the deepest have none.
        let slots = bytes as usize / 8;
        let spilled = |slot: &Slot| !matches!(slot, Slot::Bytes(_));
        let start = self.source.below((state.slots.len() - slots + 1) as u32) as usize;
        let start = if state.slots[start..start + slots].iter().any(spilled) { 0 } else { start };
        let offset = start as i32 * 8 - state.frame();
        for at in (offset..offset + bytes).step_by(8) {
            if read && !state.is_initialised(at, 8) {
                let value = self.source.imm();
                self.code.store(Size::B8, Reg::R10, at as i16, Operand::Imm(value));
                state.initialise(at, 8);
            }
        }
        self.code.mov(reg, Reg::R10);
        self.code.add_imm(reg, offset);
        state.set(reg, Kind::Address(Address { area: Area::Frame, offset }));
    }

    /// An 8-byte slot that holds no address and no iterator, by its offset from `r10`.
    pub(super) fn free_slot(&mut self, state: &State) -> Option<i32> {
        let free: Vec<usize> =
            (0..state.slots.len()).filter(|at| matches!(state.slots[*at], Slot::Bytes(_))).collect();
        (!free.is_empty()).then(|| self.source.pick(&free) as i32 * 8 - state.frame())
    }
}
