//! Functions that helpers call, timers, `may_goto`, and legacy packet loads.

use skep_isa::{AluOp, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width};

use super::Generator;
use super::flow::{MAX_DEPTH, MAX_LOOPS};
use super::state::{Address, Area, Kind, Slot, State};
use crate::helpers::{FOR_EACH, LOOKUP, REPEAT, TIMER_CANCEL, TIMER_INIT, TIMER_SET_CALLBACK, TIMER_START};
use crate::program::{ARRAY, Flavour, GLOBALS, OUTER, PERCPU, TABLE, TIMED, TIMER_AT, inner, maps};
use crate::source::Source;

/// Bytes of the caller's stack that callbacks receive.
const CONTEXT: i32 = 16;
/// Number of functions that leave a frame for one more call.
const LAST_CALLER: usize = 6;

/// The caller of a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Callback {
    /// A helper that loops over numbers.
    Repeat,
    /// A helper that iterates over that map, or, for the array of maps, over one of its inner maps.
    ForEach(u32),
    /// A timer, which expires at once.
    Timer,
}

impl Callback {
    pub(super) fn random(source: &mut Source) -> Self {
        match source.below(5) {
            0 | 1 => Self::Repeat,
            2 => Self::Timer,
            _ => Self::ForEach(source.pick(&[ARRAY, GLOBALS, PERCPU, TABLE, OUTER])),
        }
    }
}

impl Generator<'_> {
    /// The function with that index among those that helpers call.
    pub(super) fn callback(&mut self, number: usize) {
        self.functions.push(self.code.here() as u32);
        let mut state = State::new(8 * self.source.between(4, 8), false);
        let context = Kind::Address(Address { area: Area::Lent(CONTEXT), offset: 0 });
        match self.callbacks[number] {
            Callback::Repeat => {
                state.set(Reg::R1, Kind::Number);
                state.set(Reg::R2, context);
            }
            Callback::ForEach(map) => {
                let def = if map == OUTER { inner() } else { maps().swap_remove(map as usize) };
                let size = if def.key_size == 8 { Size::B8 } else { Size::B4 };
                self.code.load(size, Reg::R2, Reg::R2, 0);
                state.set(Reg::R2, Kind::Number);
                let area = Area::Value(def.value_size as i32);
                state.set(Reg::R3, Kind::Address(Address { area, offset: 0 }));
                state.set(Reg::R4, context);
            }
            Callback::Timer => {
                self.code.load(Size::B4, Reg::R2, Reg::R2, 0);
                state.set(Reg::R2, Kind::Number);
                let area = Area::Value(TIMER_AT);
                state.set(Reg::R3, Kind::Address(Address { area, offset: 0 }));
            }
        }
        self.settle_in(&mut state);
        let timer = matches!(self.callbacks[number], Callback::Timer);
        self.in_callback = Some(if timer { 0 } else { 1 });
        for _ in 0..self.source.between(1, 4) {
            self.statement(&mut state, usize::MAX);
        }
        self.leave(&mut state);
        self.in_callback = None;
    }

    /// One of the statements of this file.
    pub(super) fn control(&mut self, state: &mut State, number: usize) {
        match self.source.below(9) {
            0 => self.may_skip(state, number),
            1 => self.may_repeat(state, number),
            2..=4 => self.iterate(state, number),
            5 | 6 if number == 0 && self.options.flavour == Flavour::Skb => self.packet_load(state),
            _ => self.call_back(state, number),
        }
    }

    /// A block that `may_goto` would skip after its budget is used up, which never happens.
    fn may_skip(&mut self, state: &mut State, number: usize) {
        if state.depth >= MAX_DEPTH {
            return self.arithmetic(state);
        }
        let over = self.code.may_goto();
        let mut inner = self.inner(state);
        self.block(&mut inner, number);
        self.code.land(over);
        let untouched = state.clone();
        self.join(state, &inner, &untouched);
    }

    /// A loop that ends by its counter or by `may_goto`.
    fn may_repeat(&mut self, state: &mut State, number: usize) {
        let counter = self.source.pick(&[Reg::R7, Reg::R8, Reg::R9]);
        if state.depth >= MAX_DEPTH || state.loops >= MAX_LOOPS || !state.is_free(counter) {
            return self.arithmetic(state);
        }
        let rounds = self.source.between(1, 20) as i32;
        self.code.mov_imm(counter, 0);
        state.set(counter, Kind::Number);
        for reg in &Reg::ALL[..6] {
            if matches!(state.kind(*reg), Kind::Address(_)) {
                state.set(*reg, Kind::Unknown);
            }
        }
        let head = state.clone();
        let mut body = self.inner(state);
        body.loops += 1;
        body.pinned.push(counter);
        body.pinned.extend(state.addresses().iter().map(|(reg, _)| *reg));
        let target = self.code.here();
        let out = self.code.may_goto();
        self.block(&mut body, number);
        self.restore_numbers(&head, &mut body);
        self.code.add_imm(counter, 1);
        let again = (Width::W64, Cond::Lt, counter, Operand::Imm(rounds));
        self.code.jump_back(target, Some(again));
        self.code.land(out);
        self.join(state, &head, &body);
    }

    /// A legacy packet load; beyond the packet it ends the program, which may hold no iterator then.
    fn packet_load(&mut self, state: &mut State) {
        if state.slots.contains(&Slot::Iterator) {
            return self.arithmetic(state);
        }
        let size = self.source.pick(&[Size::B1, Size::B2, Size::B4]);
        let near = self.source.below(48) as i32;
        let imm = match self.source.below(8) {
            0 => self.source.imm(),
            1 => near - 0x10_0000,
            2 => near - 0x20_0000,
            _ => near,
        };
        let base = match self.source.below(3) {
            0 => {
                let reg = self.number(state, true);
                self.code.alu(Width::W64, AluOp::And, reg, Operand::Imm(31));
                PacketBase::Indirect(reg)
            }
            1 if self.source.chance(20) => PacketBase::Indirect(self.number(state, false)),
            _ => PacketBase::Absolute,
        };
        self.code.push(Insn::LoadPacket { size, base, imm });
        state.lose_arguments();
        state.set(Reg::R0, Kind::Number);
    }

    /// A call of a helper that calls back.
    fn call_back(&mut self, state: &mut State, number: usize) {
        let shallow = number <= LAST_CALLER && state.loops <= 1;
        if self.in_callback.is_some() || self.callbacks.is_empty() || !shallow || !self.options.helpers {
            return self.arithmetic(state);
        }
        let callee = self.source.below(self.callbacks.len() as u32) as usize;
        let Some(key) = self.free_slot(state) else { return self.arithmetic(state) };
        if let Callback::Timer = self.callbacks[callee] {
            return self.timer(state, key, callee);
        }
        let mut no_map = None;
        self.pass_stack(state, Reg::R3, CONTEXT, true);
        match self.callbacks[callee] {
            Callback::Repeat if self.source.chance(40) => {
                self.pass_number(state, Reg::R1);
                self.code.alu(Width::W64, AluOp::And, Reg::R1, Operand::Imm(7));
            }
            Callback::Repeat => {
                let rounds = self.source.below(6) as i32;
                self.code.mov_imm(Reg::R1, rounds);
            }
            Callback::ForEach(OUTER) => {
                // What was passed is passed again behind the look-up.
                let Kind::Address(Address { offset, .. }) = state.kind(Reg::R3) else {
                    unreachable!("the context was just passed")
                };
                no_map = Some(self.find_map(state, key));
                self.code.mov(Reg::R3, Reg::R10);
                self.code.add_imm(Reg::R3, offset);
            }
            Callback::ForEach(map) => self.code.load_imm64(Reg::R1, Imm64::Map(map)),
            Callback::Timer => unreachable!("timers have their own helpers"),
        }
        self.code.mov_imm(Reg::R4, 0);
        self.addresses.push((self.code.here(), callee));
        // Replaced once the function's place is known.
        self.code.load_imm64(Reg::R2, Imm64::Function(0));
        self.code.call_helper(match self.callbacks[callee] {
            Callback::Repeat => REPEAT,
            Callback::ForEach(_) | Callback::Timer => FOR_EACH,
        });
        if let Some(no_map) = no_map {
            self.code.land(no_map);
        }
        self.after_call(state, Kind::Number);
    }

    /// One of the helpers for timers, on the timer of an element whose key lies in that slot.
    fn timer(&mut self, state: &mut State, key: i32, callee: usize) {
        // Most indices are inside.
        let index = self.source.below(4) as i32;
        self.code.store(Size::B4, Reg::R10, key as i16, Operand::Imm(index));
        state.initialise(key, 4);
        self.code.mov(Reg::R2, Reg::R10);
        self.code.add_imm(Reg::R2, key);
        self.code.load_imm64(Reg::R1, Imm64::Map(TIMED));
        self.code.call_helper(LOOKUP);
        self.after_call(state, Kind::Unknown);
        let none = self.code.jump_if(Width::W64, Cond::Eq, Reg::R0, Operand::Imm(0));
        self.code.mov(Reg::R1, Reg::R0);
        self.code.add_imm(Reg::R1, TIMER_AT);
        let helper = match self.source.below(8) {
            0 => {
                self.code.load_imm64(Reg::R2, Imm64::Map(TIMED));
                self.pass_number(state, Reg::R3);
                TIMER_INIT
            }
            1 => {
                self.pass_number(state, Reg::R2);
                self.pass_number(state, Reg::R3);
                TIMER_START
            }
            2 => TIMER_CANCEL,
            _ => {
                self.addresses.push((self.code.here(), callee));
                self.code.load_imm64(Reg::R2, Imm64::Function(0));
                TIMER_SET_CALLBACK
            }
        };
        self.code.call_helper(helper);
        self.code.land(none);
        self.after_call(state, Kind::Number);
    }
}
