//! Branches, loops and early exits.

use skep_isa::{AluOp, Cond, Insn, Operand, Reg, Width};

use super::Generator;
use super::state::{Area, Kind, Slot, State};
use crate::program::Flavour;

/// Blocks open inside each other at most.
pub(super) const MAX_DEPTH: u32 = 3;
/// Loops open inside each other at most: a verifier may walk every round.
pub(super) const MAX_LOOPS: u32 = 2;

impl Generator<'_> {
    /// `if` with one or two sides.
    pub(super) fn branch(&mut self, state: &mut State, number: usize) {
        if state.depth >= MAX_DEPTH {
            return self.arithmetic(state);
        }
        let test = self.number(state, false);
        let (width, cond) = (self.width(), self.cond());
        let operand = self.operand(state);
        let over = self.code.jump_if(width, cond, test, operand);
        let mut then = self.inner(state);
        self.block(&mut then, number);
        if self.source.chance(50) {
            let long = self.source.chance(20);
            let end = self.code.jump(long);
            self.code.land(over);
            let mut other = self.inner(state);
            self.block(&mut other, number);
            self.code.land(end);
            self.join(state, &then, &other);
        } else {
            self.code.land(over);
            let untouched = state.clone();
            self.join(state, &then, &untouched);
        }
    }

    /// A loop of a few rounds.
    pub(super) fn repeat(&mut self, state: &mut State, number: usize) {
        let counter = self.source.pick(&[Reg::R7, Reg::R8, Reg::R9]);
        if state.depth >= MAX_DEPTH || state.loops >= MAX_LOOPS || !state.is_free(counter) {
            return self.arithmetic(state);
        }
        let rounds = self.source.between(1, if state.loops == 0 { 6 } else { 3 });
        let up = self.source.chance(40);
        self.code.mov_imm(counter, if up { 0 } else { rounds as i32 });
        state.set(counter, Kind::Number);

        // What calls lose is not relied on at the head; other addresses stay as they are.
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
        let test_first = up && self.source.chance(50);
        let out =
            test_first.then(|| self.code.jump_if(Width::W64, Cond::Ge, counter, Operand::Imm(rounds as i32)));
        self.block(&mut body, number);
        self.restore_numbers(&head, &mut body);
        self.code.add_imm(counter, if up { 1 } else { -1 });
        let width = self.width();
        match out {
            Some(open) => {
                self.code.jump_back(target, None);
                self.code.land(open);
                *state = Self::outside(head, state);
            }
            None => {
                let test = match (up, self.source.below(2)) {
                    (true, 0) => (width, Cond::Lt, counter, Operand::Imm(rounds as i32)),
                    (true, _) => (width, Cond::Ne, counter, Operand::Imm(rounds as i32)),
                    (false, 0) => (width, Cond::Ne, counter, Operand::Imm(0)),
                    (false, _) => (width, Cond::Sgt, counter, Operand::Imm(0)),
                };
                self.code.jump_back(target, Some(test));
                *state = Self::outside(body, state);
            }
        }
    }

    /// Ends the function in the middle, where something holds.
    pub(super) fn early_exit(&mut self, state: &mut State) {
        let test = self.number(state, false);
        let (width, cond) = (self.width(), self.cond());
        let operand = self.operand(state);
        let over = self.code.jump_if(width, cond, test, operand);
        let src = match self.in_callback {
            Some(most) => Operand::Imm(self.source.below(most + 1) as i32),
            None if state.slots.contains(&Slot::Iterator) => Operand::Imm(self.source.imm()),
            None => self.operand(state),
        };
        self.destroy_iterators(state);
        self.code.alu(Width::W64, AluOp::Mov, Reg::R0, src);
        self.code.push(Insn::Exit);
        self.code.land(over);
    }

    /// A few statements.
    pub(super) fn block(&mut self, state: &mut State, number: usize) {
        for _ in 0..self.source.between(1, 4) {
            self.statement(state, number);
        }
    }

    /// The state inside of a block.
    pub(super) fn inner(&self, state: &State) -> State {
        State { depth: state.depth + 1, outermost: false, ..state.clone() }
    }

    /// Registers that held numbers at a loop's head do so at its end.
    pub(super) fn restore_numbers(&mut self, head: &State, body: &mut State) {
        for reg in head.numbers() {
            if body.kind(reg) != Kind::Number {
                self.number_into(body, reg);
            }
        }
    }

    /// Where two paths meet. Slots that hold an address on one of them alone are not initialised: they are
    /// given a number, so that the frame holds none by surprise.
    pub(super) fn join(&mut self, state: &mut State, one: &State, other: &State) {
        let merged = one.clone().merge(other);
        *state = Self::outside(merged, state);
        for at in 0..state.slots.len() {
            let spilled = |state: &State| matches!(state.slots[at], Slot::Spilled(_));
            if state.slots[at] == Slot::Bytes(0) && (spilled(one) || spilled(other)) {
                let offset = at as i32 * 8 - state.frame();
                self.code.store(skep_isa::Size::B8, Reg::R10, offset as i16, Operand::Imm(0));
                state.initialise(offset, 8);
            }
        }
    }

    /// What is known after a block, in the surroundings that the block began in.
    pub(super) fn outside(inside: State, outside: &State) -> State {
        State {
            regs: inside.regs,
            slots: inside.slots,
            pinned: outside.pinned.clone(),
            loops: outside.loops,
            depth: outside.depth,
            outermost: outside.outermost,
        }
    }

    /// Where the context holds the packet's start and end.
    pub(super) fn packet_fields(&self) -> (i16, i16) {
        match self.options.flavour {
            Flavour::Skb => (76, 80),
            _ => (0, 4),
        }
    }

    /// Derives addresses of the packet's first bytes from the context in `r6`, and ends the program where the
    /// packet is shorter.
    pub(super) fn packet(&mut self, state: &mut State) {
        let bytes = self.source.pick(&[14, 32, 40, 64]);
        let data = self.source.pick(&[Reg::R7, Reg::R8, Reg::R9]);
        let [end, limit] = self.source.pick(&[[Reg::R1, Reg::R2], [Reg::R0, Reg::R3], [Reg::R5, Reg::R4]]);
        let (at, end_at) = self.packet_fields();
        self.code.load(skep_isa::Size::B4, data, Reg::R6, at);
        self.code.load(skep_isa::Size::B4, end, Reg::R6, end_at);
        self.code.mov(limit, data);
        self.code.add_imm(limit, bytes);
        let enough = match self.source.below(2) {
            0 => self.code.jump_if(Width::W64, Cond::Le, limit, Operand::Reg(end)),
            _ => self.code.jump_if(Width::W64, Cond::Ge, end, Operand::Reg(limit)),
        };
        self.code.mov_imm(Reg::R0, 0);
        self.code.push(Insn::Exit);
        self.code.land(enough);
        for reg in [end, limit, Reg::R0] {
            state.set(reg, Kind::Unknown);
        }
        state.set(data, Kind::Address(super::Address { area: Area::Packet(bytes), offset: 0 }));
    }
}
