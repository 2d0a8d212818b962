//! Loops over number iterators, left at the end or before it.
//!
//! ```text
//!         new(r10 - at, start, end)
//!   head: r0 = next(r10 - at)
//!         if r0 == 0 goto out
//!         a number is read from r0; some statements; perhaps goto out; perhaps another look at the number
//!         goto head
//!   out:  destroy(r10 - at)
//! ```
//!
//! Between `new` and `destroy` the eight bytes are [`Slot::Iterator`], which no statement reads or writes. An early
//! exit destroys the iterators first.

use skep_abi::own_kfunc_number;
use skep_isa::{AluOp, CallTarget, Cond, Insn, Operand, Reg, Size, Width};

use super::Generator;
use super::flow::{MAX_DEPTH, MAX_LOOPS};
use super::memory::NEVER_SPILLED;
use super::state::{Kind, Slot, State};

impl Generator<'_> {
    pub(super) fn iterate(&mut self, state: &mut State, number: usize) {
        let free: Vec<usize> = (NEVER_SPILLED..state.slots.len())
            .filter(|at| matches!(state.slots[*at], Slot::Bytes(_)))
            .collect();
        if state.depth >= MAX_DEPTH || state.loops >= MAX_LOOPS || free.is_empty() {
            return self.arithmetic(state);
        }
        let slot = self.source.pick(&free);
        let (at, before) = (slot as i32 * 8 - state.frame(), state.slots[slot]);
        self.pass_range(state);
        self.iterator_call("new", at);
        self.after_call(state, Kind::Number);
        state.slots[slot] = Slot::Iterator;
        // An error may be looked at, or not. Calls keep these registers.
        if self.source.chance(30) {
            let dst = self.destination(state);
            if dst.number() >= 6 && !matches!(state.kind(dst), Kind::Address(_)) {
                self.code.mov(dst, Reg::R0);
                state.set(dst, Kind::Number);
            }
        }

        // The head assumes only what holds in every iteration.
        let mut head = state.clone();
        head.set(Reg::R0, Kind::Unknown);
        let target = self.code.here();
        self.iterator_call("next", at);
        let out = self.code.jump_if(Width::W64, Cond::Eq, Reg::R0, Operand::Imm(0));
        let mut body = self.inner(&head);
        body.loops += 1;
        body.pinned.extend(head.addresses().iter().map(|(reg, _)| *reg));
        let kept = self.keep_element(&head, &mut body);
        self.read_element(&mut body, Reg::R0);
        self.block(&mut body, number);
        let broken = self.source.chance(40).then(|| {
            let test = self.number(&mut body, false);
            let (width, cond, operand) = (self.width(), self.cond(), self.operand(&body));
            let open = self.code.jump_if(width, cond, test, operand);
            let left = body.clone();
            self.statement(&mut body, number);
            (open, left)
        });
        if let Some(kept) = kept {
            self.read_element(&mut body, kept);
        }
        self.restore_numbers(&head, &mut body);
        self.code.jump_back(target, None);

        self.code.land(out);
        let mut ended = head;
        ended.set(Reg::R0, Kind::Number);
        match broken {
            Some((open, left)) => {
                self.code.land(open);
                self.join(state, &ended, &left);
            }
            None => *state = Self::outside(ended, state),
        }
        self.iterator_call("destroy", at);
        self.after_call(state, Kind::Unknown);
        state.slots[slot] = Slot::Bytes(0);
        // The head of an enclosing loop may assume that the bytes are numbers.
        if before != Slot::Bytes(0) || self.source.chance(30) {
            let value = self.source.imm();
            self.code.store(Size::B8, Reg::R10, at as i16, Operand::Imm(value));
            state.initialise(at, 8);
        }
    }

    /// Destroys the function's iterators, before an exit.
    pub(super) fn destroy_iterators(&mut self, state: &State) {
        for slot in 0..state.slots.len() {
            if state.slots[slot] == Slot::Iterator {
                self.iterator_call("destroy", slot as i32 * 8 - state.frame());
            }
        }
    }

    /// Sets an iterator's start and end in `r2` and `r3`: a few numbers, or none.
    fn pass_range(&mut self, state: &mut State) {
        let mask = |generator: &mut Self, reg| {
            generator.code.alu(Width::W64, AluOp::And, reg, Operand::Imm(3));
        };
        let few = self.source.below(5) as i32;
        match self.source.below(8) {
            0 | 1 => {
                self.pass_number(state, Reg::R2);
                mask(self, Reg::R2);
                self.code.mov_imm(Reg::R3, few);
            }
            2 | 3 => {
                self.pass_number(state, Reg::R3);
                mask(self, Reg::R3);
                self.code.mov_imm(Reg::R2, few - 3);
            }
            // Any number and a few after it: the upper half of a register is ignored.
            4 => {
                self.pass_number(state, Reg::R2);
                self.code.mov(Reg::R3, Reg::R2);
                self.code.add_imm(Reg::R3, few);
            }
            // More numbers than the limit.
            5 => {
                self.code.mov_imm(Reg::R2, few);
                self.code.mov_imm(Reg::R3, i32::MAX);
            }
            _ => {
                let start = self.source.imm();
                self.code.mov_imm(Reg::R2, start);
                self.code.mov_imm(Reg::R3, start.wrapping_add(few));
            }
        }
    }

    /// A copy of the element's address in a register that nothing else uses, so that it can be read again.
    fn keep_element(&mut self, head: &State, body: &mut State) -> Option<Reg> {
        let reg = self.source.pick(&[Reg::R6, Reg::R7, Reg::R8, Reg::R9]);
        if !head.is_free(reg) || head.kind(reg) != Kind::Unknown {
            return None;
        }
        self.code.mov(reg, Reg::R0);
        body.pinned.push(reg);
        Some(reg)
    }

    /// Reads an element, or a part of it.
    fn read_element(&mut self, body: &mut State, base: Reg) {
        let size = self.source.pick(&[Size::B4, Size::B4, Size::B2, Size::B1]);
        let offset = self.source.below(4 / size.bytes()) as i16 * size.bytes() as i16;
        let dst = match self.destination(body) {
            reg if matches!(body.kind(reg), Kind::Address(_)) => Reg::R0,
            reg => reg,
        };
        self.code.push(Insn::Load { size, signed: self.source.chance(40), dst, base, offset });
        body.set(dst, Kind::Number);
    }

    /// Calls one of the functions of the iterator at `at` from `r10`.
    fn iterator_call(&mut self, function: &str, at: i32) {
        let Some(number) = own_kfunc_number(&format!("bpf_iter_num_{function}")) else {
            unreachable!("the runtime has all three")
        };
        self.code.mov(Reg::R1, Reg::R10);
        self.code.add_imm(Reg::R1, at);
        self.code.push(Insn::Call { target: CallTarget::Kfunc { id: number as i32, object: 0 } });
    }
}
