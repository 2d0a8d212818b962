//! Programs that a verifier should accept, from the whole instruction set.
//!
//! A program is a tree of statements, generated front to back: arithmetic, memory, branches, loops, calls.
//! The generator carries a [`State`] along, as a verifier would, and only writes what the state allows:
//!
//! * registers and stack bytes are read after they were written;
//! * addresses keep a known offset, or get a variable one that was masked just before;
//! * in loops, each register and slot that holds a number or an address at the head does so at the end.
//!
//! Results are computed from everything that is live at the end, so that a wrong value anywhere is likely to show.

mod calls;
mod control;
mod flow;
mod idioms;
mod iterators;
mod memory;
mod numbers;
mod state;

use skep_isa::{AluOp, Imm64, Insn, Operand, Reg, Size, Width};

use crate::builder::Builder;
use crate::program::{Flavour, TestProgram};
use crate::source::Source;
use calls::Signature;
use control::Callback;
use state::{Address, Area, Kind, State};

/// The features of a generated program.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Its input.
    pub flavour: Flavour,
    /// Approximate number of statements.
    pub statements: u32,
    /// Bytes of stack that each function may use: at least 32, at most 512.
    pub max_frame: u32,
    /// Whether it keeps Linux's rules beyond safety: immediate divisors are not zero, nothing is subtracted from
    /// `r10`, and the stack is accessed aligned.
    pub linux: bool,
    /// Whether it calls helpers.
    pub helpers: bool,
    /// Whether it uses maps.
    pub maps: bool,
    /// Whether it has subprograms, up to eight functions in all.
    pub calls: bool,
    /// Whether it has atomics, load-acquire and store-release.
    pub atomics: bool,
    /// Whether it has functions that helpers call, timers' among them, `may_goto`, loops over iterators, maps of
    /// maps, and legacy packet loads if its input is a socket buffer.
    pub control: bool,
}

impl Options {
    /// Everything but [`Options::control`], for programs of that flavour.
    pub fn all(flavour: Flavour) -> Self {
        Self {
            flavour,
            statements: 40,
            max_frame: 512,
            linux: false,
            helpers: true,
            maps: true,
            calls: true,
            atomics: true,
            control: false,
        }
    }

    /// Everything, for programs of that flavour.
    pub fn with_control(flavour: Flavour) -> Self {
        Self { control: true, ..Self::all(flavour) }
    }
}

/// A program that a verifier should accept.
pub fn structured(source: &mut Source, options: &Options) -> TestProgram {
    let count = match options.calls {
        true => source.pick(&[1, 1, 1, 2, 2, 3, 5, 8]),
        false => 1,
    };
    let signatures: Vec<Signature> = (0..count).map(|_| Signature::random(source)).collect();
    let callbacks = match options.control {
        true => (0..source.below(3)).map(|_| Callback::random(source)).collect(),
        false => Vec::new(),
    };
    let callback_count = callbacks.len();
    let mut generator = Generator {
        source,
        options,
        code: Builder::default(),
        signatures,
        functions: Vec::new(),
        calls: Vec::new(),
        callbacks,
        addresses: Vec::new(),
        in_callback: None,
        statements: options.statements,
        extra_calls: 2,
        stack_left: if callback_count == 0 { 512 } else { 512 - CALLBACK_FRAME },
    };
    for number in 0..count {
        generator.function(number);
    }
    for number in 0..callback_count {
        generator.callback(number);
    }
    generator.finish()
}

/// A program under construction.
struct Generator<'a> {
    source: &'a mut Source,
    options: &'a Options,
    code: Builder,
    signatures: Vec<Signature>,
    /// First slots of the functions so far.
    functions: Vec<u32>,
    /// Slots of local calls, each with the index of the called function.
    calls: Vec<(usize, usize)>,
    /// The callers of the functions that helpers call, which follow the others.
    callbacks: Vec<Callback>,
    /// Slots that load the address of one of them, with its index.
    addresses: Vec<(usize, usize)>,
    /// The greatest result of the current function, if it is one of them.
    in_callback: Option<u32>,
    /// Remaining number of statements.
    statements: u32,
    /// Remaining number of local calls, not counting the one from each function to the next.
    extra_calls: u32,
    /// Remaining bytes of stack for the following functions: each calls the next, and a chain shares 512.
    stack_left: u32,
}

/// The bytes of stack that the smallest frame counts as.
const LEAST_FRAME: u32 = 32;
/// The bytes of stack that functions called by helpers may count as.
const CALLBACK_FRAME: u32 = 64;

impl Generator<'_> {
    fn function(&mut self, number: usize) {
        self.functions.push(self.code.here() as u32);
        let count = self.signatures.len();
        let others = LEAST_FRAME * (count - 1 - number) as u32;
        let most = (self.options.max_frame.min(self.stack_left - others) / 8).clamp(4, 64);
        let frame = 8 * match self.source.below(4) {
            0 => 4,
            1 => most,
            _ => self.source.between(4, most),
        };
        self.stack_left -= frame.next_multiple_of(LEAST_FRAME);
        let mut state = State::new(frame, number == 0);
        match number {
            0 => self.enter_program(&mut state),
            _ => self.signatures[number].enter(&mut state),
        }
        self.settle_in(&mut state);

        let share = (self.options.statements / count as u32).max(4).min(self.statements);
        self.statements -= share;
        let call_next = (number + 1 < count).then(|| self.source.below(share.max(1)));
        for at in 0..share {
            if call_next == Some(at) {
                self.call(&mut state, number + 1);
            }
            self.statement(&mut state, number);
        }
        if number + 1 < count && share == 0 {
            self.call(&mut state, number + 1);
        }
        self.leave(&mut state);
    }

    /// The state at the program's entry.
    fn enter_program(&mut self, state: &mut State) {
        match self.options.flavour {
            Flavour::Buffer { len } => {
                state.set(Reg::R1, Kind::Address(Address { area: Area::Buffer(len as i32), offset: 0 }));
                state.set(Reg::R2, Kind::Number);
            }
            Flavour::Xdp | Flavour::Skb => {
                // r6 keeps the context for the whole program.
                self.code.mov(Reg::R6, Reg::R1);
                state.pinned.push(Reg::R6);
                self.packet(state);
            }
        }
    }

    /// Moves arguments to registers or stack slots that calls preserve.
    fn settle_in(&mut self, state: &mut State) {
        for (reg, address) in state.addresses() {
            if reg == Reg::R10 || reg.number() >= 6 || self.source.chance(20) {
                continue;
            }
            let kept = self.source.pick(&[Reg::R7, Reg::R8, Reg::R9]);
            if state.is_free(kept) {
                self.code.mov(kept, reg);
                state.set(kept, Kind::Address(address));
            }
        }
        let reg = self.source.pick(&Reg::ALL[..10]);
        if state.is_free(reg) && state.kind(reg) == Kind::Unknown {
            self.number_into(state, reg);
        }
    }

    fn statement(&mut self, state: &mut State, number: usize) {
        if self.options.control && self.source.chance(8) {
            return self.control(state, number);
        }
        match self.source.below(100) {
            0..=17 => self.arithmetic(state),
            18..=29 => self.idiom(state),
            30..=36 => self.conversion(state),
            37..=48 => self.load(state),
            49..=60 => self.store(state),
            61..=65 if number == 0 && self.options.flavour.has_packet() => {
                self.variable_packet_access(state);
            }
            61..=65 => self.variable_access(state),
            66..=72 if self.options.atomics => self.atomic(state),
            73..=77 => self.move_address(state),
            78..=80 => self.spill_or_fill(state),
            81..=87 => self.branch(state, number),
            88..=91 => self.repeat(state, number),
            92..=94 if self.options.helpers => self.helper(state),
            95..=96 if self.options.maps => self.map(state, number),
            97 if state.outermost && self.options.flavour == Flavour::Xdp => self.move_packet(state),
            98 => self.extra_call(state, number),
            99 => self.early_exit(state),
            _ => self.arithmetic(state),
        }
    }

    /// Computes a result from everything live, and returns it.
    fn leave(&mut self, state: &mut State) {
        let result = match state.is_free(Reg::R0) {
            true if state.kind(Reg::R0) == Kind::Number => Reg::R0,
            true => {
                self.code.mov_imm(Reg::R0, 0);
                state.set(Reg::R0, Kind::Number);
                Reg::R0
            }
            false => unreachable!("r0 is never pinned"),
        };
        for reg in state.numbers() {
            if reg != result {
                self.code.alu(Width::W64, AluOp::Mul, result, Operand::Imm(31));
                self.code.alu(Width::W64, AluOp::Add, result, Operand::Reg(reg));
            }
        }
        for offset in (-state.frame()..0).step_by(8) {
            if state.is_initialised(offset, 8) {
                self.code.load(Size::B8, Reg::R1, Reg::R10, offset as i16);
                self.code.alu(Width::W64, AluOp::Mul, result, Operand::Imm(31));
                self.code.alu(Width::W64, AluOp::Xor, result, Operand::Reg(Reg::R1));
            }
        }
        if let Some(most) = self.in_callback {
            // Most functions continue after it.
            let mask = if self.source.chance(30) { most } else { 0 };
            self.code.alu(Width::W64, AluOp::And, result, Operand::Imm(mask as i32));
        }
        self.code.push(Insn::Exit);
    }

    fn finish(mut self) -> TestProgram {
        for (slot, callee) in self.calls {
            let distance = self.functions[callee] as i32 - slot as i32 - 1;
            let target = skep_isa::CallTarget::Local(distance);
            self.code.insns[slot] = Insn::Call { target };
        }
        for (slot, callback) in self.addresses {
            let distance = self.functions[self.signatures.len() + callback] as i32 - slot as i32 - 1;
            if let Insn::LoadImm64 { value, .. } = &mut self.code.insns[slot] {
                *value = Imm64::Function(distance);
            }
        }
        TestProgram { insns: self.code.insns, functions: self.functions, flavour: self.options.flavour }
    }
}
