//! Probes for loops that end by themselves, and for what numbers become in them.
//!
//! Numbers lie in registers and in cells of the stack. Loops of every kind, nested or not, change them: bounded ones,
//! `may_goto`, iterators and functions that a helper calls again and again. In between the numbers are cast between
//! 32 and 64 bits, swapped, extended, linked by copies, and stored and loaded by halves. Many branches depend on them,
//! and some are used as an offset in the end. A verifier that widens a number which decides, or takes a later
//! iteration for an earlier one, misses a state that a run reaches.
//!
//! ```text
//!   r10 - 8*n    what loops count with, and iterators
//!   r10 - 40     the buffer's address
//!   r10 - 32...  four cells of eight bytes
//!
//!   functions that a helper calls: r9 = r10 - 40 of their caller
//! ```

use skep_abi::own_kfunc_number;
use skep_isa::{AluOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, Reg, Size, Width};

use super::objects::{BUFFER, access, finish, near};
use crate::builder::{Builder, Open};
use crate::helpers::REPEAT;
use crate::program::{Flavour, TestProgram};
use crate::source::Source;

/// Where numbers are kept: a register, or a cell at an offset from the frame's base.
#[derive(Clone, Copy)]
enum Place {
    Reg(Reg),
    Cell(i16),
}

/// The function that is being written.
#[derive(Clone, Copy)]
struct Frame {
    /// The register that cells are addressed by.
    base: Reg,
    /// The cells' buffer pointer relative to it.
    shift: i16,
    places: [Place; 6],
    /// Offset from `r10` below which loops keep their counts.
    below: i16,
}

const fn places(shift: i16) -> [Place; 6] {
    [
        Place::Reg(Reg::R7),
        Place::Reg(Reg::R8),
        Place::Cell(shift + 8),
        Place::Cell(shift + 16),
        Place::Cell(shift + 24),
        Place::Cell(shift + 32),
    ]
}

const MAIN: Frame = Frame { base: Reg::R10, shift: -40, places: places(-40), below: -40 };
const CALLED: Frame = Frame { base: Reg::R9, shift: 0, places: places(0), below: 0 };

/// Depth of nested loops.
const DEPTH: u32 = 2;

/// A program of loops whose numbers decide.
pub fn iterated(source: &mut Source) -> TestProgram {
    let mut probe = Probe { source, code: Builder::default(), frame: MAIN, depth: 0, calls: Vec::new() };
    probe.code.mov(Reg::R6, Reg::R1);
    probe.code.store(Size::B8, Reg::R10, MAIN.shift, Operand::Reg(Reg::R6));
    for place in MAIN.places {
        probe.give(place);
    }
    for _ in 0..probe.source.between(1, 3) {
        probe.statements(3);
        probe.repeat();
    }
    probe.statements(4);
    let mut open = Vec::new();
    for _ in 0..probe.source.below(3) {
        probe.use_one(&mut open);
    }
    let Probe { code, mut calls, .. } = probe;
    let mut program = finish(code, open, Flavour::Buffer { len: BUFFER as u32 });
    // Called functions may loop, but call none.
    calls.reverse();
    while let Some(slot) = calls.pop() {
        let start = program.insns.len();
        program.functions.push(start as u32);
        if let Insn::LoadImm64 { value, .. } = &mut program.insns[slot] {
            *value = Imm64::Function((start - slot - 1) as i32);
        }
        program.insns.extend(called(source));
    }
    program
}

/// A function that a helper calls with a number and the address of the caller's cells.
fn called(source: &mut Source) -> Vec<Insn> {
    let mut probe =
        Probe { source, code: Builder::default(), frame: CALLED, depth: DEPTH - 1, calls: Vec::new() };
    probe.code.mov(Reg::R9, Reg::R2);
    probe.code.mov(Reg::R7, Reg::R1);
    probe.code.load(Size::B8, Reg::R6, Reg::R9, CALLED.shift);
    probe.give(Place::Reg(Reg::R8));
    probe.statements(4);
    if probe.source.chance(25) {
        probe.repeat();
        probe.statements(2);
    }
    let mut open = Vec::new();
    if probe.source.chance(15) {
        probe.use_one(&mut open);
    }
    for jump in open {
        probe.code.land(jump);
    }
    if probe.source.chance(35) {
        let place = probe.place();
        probe.get(place, Reg::R0);
        if probe.source.chance(85) {
            probe.code.alu(Width::W64, AluOp::And, Reg::R0, Operand::Imm(1));
        }
    } else {
        probe.code.mov_imm(Reg::R0, 0);
    }
    probe.code.push(Insn::Exit);
    probe.code.insns
}

struct Probe<'a> {
    source: &'a mut Source,
    code: Builder,
    frame: Frame,
    depth: u32,
    /// Slots that load the address of a function.
    calls: Vec<usize>,
}

impl Probe<'_> {
    fn place(&mut self) -> Place {
        self.source.pick(&self.frame.places)
    }

    fn cell(&mut self) -> i16 {
        self.frame.shift + 8 * self.source.between(1, 4) as i16
    }

    fn width(&mut self) -> Width {
        self.source.pick(&[Width::W64, Width::W64, Width::W32])
    }

    fn cond(&mut self) -> Cond {
        self.source.pick(&Cond::ALL)
    }

    fn get(&mut self, place: Place, to: Reg) {
        match place {
            Place::Reg(reg) => self.code.mov(to, reg),
            Place::Cell(at) => self.code.load(Size::B8, to, self.frame.base, at),
        }
    }

    fn put(&mut self, place: Place, from: Reg) {
        match place {
            Place::Reg(reg) => self.code.mov(reg, from),
            Place::Cell(at) => self.code.store(Size::B8, self.frame.base, at, Operand::Reg(from)),
        }
    }

    /// A number of the input in `to`.
    fn input(&mut self, to: Reg) {
        let size = self.source.pick(&[Size::B1, Size::B4, Size::B8]);
        let signed = size != Size::B8 && self.source.chance(25);
        let offset = 8 * self.source.below(8) as i16;
        self.code.push(Insn::Load { size, signed, dst: to, base: Reg::R6, offset });
    }

    /// Gives a place another number: a flag of two constants, a small number, or one of the input.
    fn give(&mut self, place: Place) {
        let (one, other) = self.source.pick(&[(0, 1), (1, 2), (31, 32), (-1, 0), (55, 56), (63, 64)]);
        match self.source.below(6) {
            0 => self.code.mov_imm(Reg::R1, one),
            1 => self.code.mov_imm(Reg::R1, self.source.pick(&[one, other])),
            2 => {
                self.input(Reg::R0);
                self.code.mov_imm(Reg::R1, one);
                let (cond, imm) = (self.cond(), near(self.source, 16));
                let over = self.code.jump_if(Width::W64, cond, Reg::R0, Operand::Imm(imm));
                self.code.mov_imm(Reg::R1, other);
                self.code.land(over);
            }
            3 => {
                self.input(Reg::R1);
                let mask = self.source.pick(&[1, 3, 7, 31, 56]);
                let width = self.width();
                self.code.alu(width, AluOp::And, Reg::R1, Operand::Imm(mask));
            }
            4 => self.input(Reg::R1),
            _ => {
                let wide = self.source.number();
                self.code.load_imm64(Reg::R1, Imm64::Value(wide));
            }
        }
        if let (Place::Cell(at), true) = (place, self.source.chance(15)) {
            let imm = self.source.pick(&[one, other]);
            return self.code.store(Size::B8, self.frame.base, at, Operand::Imm(imm));
        }
        self.put(place, Reg::R1);
    }

    fn statements(&mut self, most: u32) {
        for _ in 0..self.source.between(1, most) {
            self.statement();
        }
    }

    fn statement(&mut self) {
        match self.source.below(12) {
            0 => {
                let place = self.place();
                self.give(place);
            }
            1 | 2 => self.copy(),
            3 => self.half(),
            4 => self.convert(),
            5 => {
                let (one, other) = (self.place(), self.place());
                let op = self.source.pick(&[
                    AluOp::Add,
                    AluOp::Add,
                    AluOp::Sub,
                    AluOp::And,
                    AluOp::Or,
                    AluOp::Xor,
                    AluOp::Lsh,
                    AluOp::Rsh,
                ]);
                self.get(one, Reg::R1);
                self.get(other, Reg::R2);
                let width = self.width();
                self.code.alu(width, op, Reg::R1, Operand::Reg(Reg::R2));
                self.put(one, Reg::R1);
            }
            6 | 7 => {
                let place = self.place();
                self.get(place, Reg::R1);
                self.code.add_imm(Reg::R1, near(self.source, 0));
                self.put(place, Reg::R1);
            }
            _ => self.branch(),
        }
    }

    fn copy(&mut self) {
        let (from, to) = (self.place(), self.place());
        self.get(from, Reg::R1);
        self.put(to, Reg::R1);
    }

    /// Stores or loads a part of a cell, or copies one half of a cell to a half of another.
    fn half(&mut self) {
        let size = self.source.pick(&[Size::B4, Size::B4, Size::B4, Size::B2, Size::B1]);
        let bytes = size.bytes() as i16;
        let within = |source: &mut Source| source.below(8 / bytes as u32) as i16 * bytes;
        let (cell, place) = (self.cell(), self.place());
        let at = cell + within(self.source);
        let signed = self.source.chance(25);
        let part = Insn::Load { size, signed, dst: Reg::R1, base: self.frame.base, offset: at };
        match self.source.below(5) {
            0 => {
                let imm = self.source.pick(&[0, 0, 1, 2, -1, 64]);
                self.code.store(size, self.frame.base, at, Operand::Imm(imm));
            }
            1 => {
                self.get(place, Reg::R1);
                self.code.store(size, self.frame.base, at, Operand::Reg(Reg::R1));
            }
            2 | 3 => {
                self.code.push(part);
                self.put(place, Reg::R1);
            }
            _ => {
                self.code.push(part);
                let to = self.cell() + within(self.source);
                self.code.store(size, self.frame.base, to, Operand::Reg(Reg::R1));
            }
        }
    }

    /// Casts a number, swaps its bytes, or extends a part of it; there and back, sometimes.
    fn convert(&mut self) {
        let (from, to) = (self.place(), self.place());
        self.get(from, Reg::R1);
        for _ in 0..self.source.between(1, 2) {
            let width = self.width();
            match self.source.below(6) {
                0 => self.code.alu(Width::W32, AluOp::Mov, Reg::R1, Operand::Reg(Reg::R1)),
                1 => {
                    let from = self.source.pick(&[Size::B1, Size::B2, Size::B4]);
                    let width = if from == Size::B4 { Width::W64 } else { width };
                    self.code.push(Insn::MovSx { width, from, dst: Reg::R1, src: Reg::R1 });
                }
                2 => {
                    let order = self.source.pick(&[ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap]);
                    let size = self.source.pick(&[Size::B2, Size::B4, Size::B8]);
                    self.code.push(Insn::Endian { order, size, dst: Reg::R1 });
                }
                3 => self.code.push(Insn::Neg { width, dst: Reg::R1 }),
                4 => {
                    let back = self.source.pick(&[AluOp::Rsh, AluOp::Arsh]);
                    let by = self.source.pick(&[8, 32, 32, 56]);
                    self.code.alu(Width::W64, AluOp::Lsh, Reg::R1, Operand::Imm(by));
                    self.code.alu(Width::W64, back, Reg::R1, Operand::Imm(by));
                }
                _ => {
                    let op = self.source.pick(&[AluOp::Add, AluOp::And, AluOp::Arsh, AluOp::Mul]);
                    self.code.alu(Width::W32, op, Reg::R1, Operand::Imm(near(self.source, 1)));
                }
            }
        }
        // The original may be what its copy is compared as.
        self.put(to, Reg::R1);
    }

    /// Does something only if a number compares so with another; the number may be a half or a cast copy.
    fn branch(&mut self) {
        let (one, other) = (self.place(), self.place());
        self.get(one, Reg::R2);
        match self.source.below(6) {
            0 => self.code.alu(Width::W32, AluOp::Mov, Reg::R2, Operand::Reg(Reg::R2)),
            1 => {
                let from = self.source.pick(&[Size::B1, Size::B2, Size::B4]);
                self.code.push(Insn::MovSx { width: Width::W64, from, dst: Reg::R2, src: Reg::R2 });
            }
            _ => {}
        }
        let with = match self.source.below(4) {
            0 => {
                self.get(other, Reg::R3);
                Operand::Reg(Reg::R3)
            }
            1 => {
                self.input(Reg::R3);
                Operand::Reg(Reg::R3)
            }
            _ => {
                let edge = self.source.pick(&[0, 1, 2, 31, 32, 56, 64]);
                Operand::Imm(near(self.source, edge))
            }
        };
        let (width, cond) = (self.width(), self.cond());
        let over = self.code.jump_if(width, cond, Reg::R2, with);
        if self.source.chance(75) {
            self.change();
        }
        if self.source.chance(30) {
            let meet = self.code.jump(false);
            self.code.land(over);
            self.change();
            self.code.land(meet);
        } else {
            self.code.land(over);
        }
    }

    fn change(&mut self) {
        match self.source.below(5) {
            0 | 1 => {
                let place = self.place();
                self.give(place);
            }
            2 => self.copy(),
            3 => self.half(),
            _ => self.convert(),
        }
    }

    /// One of the loops.
    fn repeat(&mut self) {
        if self.depth >= DEPTH {
            return self.statement();
        }
        self.depth += 1;
        let count = self.frame.below - 8 * self.depth as i16;
        match self.source.below(if self.frame.base == Reg::R10 { 4 } else { 3 }) {
            0 => self.bounded(count),
            1 => self.may_goto(count),
            2 => self.iterator(count),
            _ => self.call_back(),
        }
        self.depth -= 1;
    }

    fn body(&mut self) {
        self.statements(4);
        if self.source.chance(25) {
            self.repeat();
            self.statements(2);
        }
        if self.source.chance(10) {
            let mut open = Vec::new();
            self.use_one(&mut open);
            for jump in open {
                self.code.land(jump);
            }
        }
    }

    /// Counts at `count` from `r10`, and leaves the count in `r1`.
    fn count(&mut self, count: i16) {
        self.code.load(Size::B8, Reg::R1, Reg::R10, count);
        self.code.add_imm(Reg::R1, 1);
        self.code.store(Size::B8, Reg::R10, count, Operand::Reg(Reg::R1));
    }

    /// A jump out of a loop if some number compares so.
    fn way_out(&mut self) -> Open {
        let place = self.place();
        self.get(place, Reg::R2);
        let (width, cond) = (self.width(), self.cond());
        let edge = self.source.pick(&[0, 1, 32, 64]);
        let imm = near(self.source, edge);
        self.code.jump_if(width, cond, Reg::R2, Operand::Imm(imm))
    }

    fn bounded(&mut self, count: i16) {
        self.code.store(Size::B8, Reg::R10, count, Operand::Imm(0));
        let head = self.code.here();
        self.body();
        let out = self.source.chance(30).then(|| self.way_out());
        self.count(count);
        let rounds = self.source.between(1, 5) as i32;
        self.code.jump_back(head, Some((Width::W64, Cond::Lt, Reg::R1, Operand::Imm(rounds))));
        out.into_iter().for_each(|out| self.code.land(out));
    }

    fn may_goto(&mut self, count: i16) {
        self.code.store(Size::B8, Reg::R10, count, Operand::Imm(0));
        let head = self.code.here();
        let mut out = vec![self.code.may_goto()];
        self.body();
        if self.source.chance(30) {
            let way = self.way_out();
            out.push(way);
        }
        if self.source.chance(96) {
            self.count(count);
            let rounds = self.source.between(1, 9) as i32;
            let cond = self.source.pick(&[Cond::Lt, Cond::Ne]);
            self.code.jump_back(head, Some((Width::W64, cond, Reg::R1, Operand::Imm(rounds))));
        } else {
            self.code.jump_back(head, None);
        }
        out.into_iter().for_each(|out| self.code.land(out));
    }

    fn iterator(&mut self, at: i16) {
        let few = self.source.below(6) as i32;
        self.code.mov_imm(Reg::R2, 0);
        self.code.mov_imm(Reg::R3, few);
        if self.source.chance(50) {
            let place = self.place();
            self.get(place, Reg::R3);
            self.code.alu(Width::W64, AluOp::And, Reg::R3, Operand::Imm(7));
        }
        self.iterate("new", at);
        let head = self.code.here();
        self.iterate("next", at);
        let mut out = vec![self.code.jump_if(Width::W64, Cond::Eq, Reg::R0, Operand::Imm(0))];
        if self.source.chance(60) {
            self.code.push(Insn::Load {
                size: Size::B4,
                signed: self.source.chance(50),
                dst: Reg::R1,
                base: Reg::R0,
                offset: 0,
            });
            let place = self.place();
            self.put(place, Reg::R1);
        }
        self.body();
        if self.source.chance(30) {
            let way = self.way_out();
            out.push(way);
        }
        self.code.jump_back(head, None);
        out.into_iter().for_each(|out| self.code.land(out));
        self.iterate("destroy", at);
    }

    fn iterate(&mut self, function: &str, at: i16) {
        let Some(number) = own_kfunc_number(&format!("bpf_iter_num_{function}")) else {
            unreachable!("the runtime has all three")
        };
        self.code.mov(Reg::R1, Reg::R10);
        self.code.add_imm(Reg::R1, at.into());
        self.code.push(Insn::Call { target: CallTarget::Kfunc { id: number as i32, object: 0 } });
    }

    fn call_back(&mut self) {
        let rounds = self.source.pick(&[0, 1, 2, 3, 5, 9]);
        self.code.mov_imm(Reg::R1, rounds);
        if self.source.chance(50) {
            let place = self.place();
            self.get(place, Reg::R1);
            self.code.alu(Width::W64, AluOp::And, Reg::R1, Operand::Imm(7));
        }
        self.calls.push(self.code.here());
        // Replaced once the function's place is known.
        self.code.load_imm64(Reg::R2, Imm64::Function(0));
        self.code.mov(Reg::R3, Reg::R10);
        self.code.add_imm(Reg::R3, MAIN.shift.into());
        self.code.mov_imm(Reg::R4, 0);
        self.code.call_helper(REPEAT);
        if self.source.chance(50) {
            let place = self.place();
            self.put(place, Reg::R0);
        }
    }

    /// Uses a number as an offset into the buffer, mostly after a check of it or of another.
    fn use_one(&mut self, open: &mut Vec<Open>) {
        let used = self.place();
        self.get(used, Reg::R2);
        match self.source.below(4) {
            0 => {}
            1 => self.code.alu(Width::W64, AluOp::And, Reg::R2, Operand::Imm(63)),
            _ => {
                let checked = if self.source.chance(80) { used } else { self.place() };
                self.get(checked, Reg::R3);
                open.push(self.code.jump_if(
                    Width::W64,
                    Cond::Gt,
                    Reg::R3,
                    Operand::Imm(near(self.source, BUFFER - 1)),
                ));
                self.get(used, Reg::R2);
            }
        }
        self.code.mov(Reg::R1, Reg::R6);
        self.code.alu(Width::W64, AluOp::Add, Reg::R1, Operand::Reg(Reg::R2));
        access(self.source, &mut self.code, Size::B1, Reg::R1, 0);
    }
}
