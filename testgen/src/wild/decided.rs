//! Probes for numbers that decide: a verifier must compare them where paths meet.
//!
//! Paths bring different numbers to the places where they meet: in registers, in the stack, linked to each other or
//! not. From there on the numbers are copied, stored in parts, compared, added, and passed to a function and back. Some
//! of them are used as an offset in the end. A verifier that forgets, on the way back from there, which numbers an
//! offset was made of, wrongly ends a path that another number decides.

use skep_isa::{AluOp, CallTarget, Cond, Insn, Operand, Reg, Size, Width};

use super::objects::{BUFFER, access, finish, near};
use crate::builder::{Builder, Open};
use crate::program::{Flavour, TestProgram};
use crate::source::Source;

/// Where numbers are kept.
#[derive(Clone, Copy)]
enum Place {
    Reg(Reg),
    Stack(i16),
}

const PLACES: [Place; 6] = [
    Place::Reg(Reg::R7),
    Place::Reg(Reg::R8),
    Place::Reg(Reg::R9),
    Place::Stack(-8),
    Place::Stack(-16),
    Place::Stack(-24),
];

/// A program of which some numbers decide.
pub fn decided(source: &mut Source) -> TestProgram {
    let (mut code, mut open, mut calls) = (Builder::default(), Vec::new(), Vec::new());
    code.mov(Reg::R6, Reg::R1);
    for place in PLACES {
        give(source, &mut code, place);
    }
    for _ in 0..source.between(1, 4) {
        flag(source, &mut code);
        let second =
            code.jump_if(Width::W64, source.pick(&Cond::ALL), Reg::R0, Operand::Imm(near(source, 16)));
        for _ in 0..source.between(1, 3) {
            change(source, &mut code);
        }
        let meet = code.jump(false);
        code.land(second);
        for _ in 0..source.between(1, 3) {
            change(source, &mut code);
        }
        code.land(meet);
        for _ in 0..source.below(4) {
            happen(source, &mut code, &mut calls);
        }
    }
    for _ in 0..source.between(1, 3) {
        happen(source, &mut code, &mut calls);
        use_one(source, &mut code, &mut open);
    }
    let mut program = finish(code, open, Flavour::Buffer { len: BUFFER as u32 });
    if !calls.is_empty() {
        let start = program.insns.len();
        for call in calls {
            program.insns[call] = Insn::Call { target: CallTarget::Local((start - call - 1) as i32) };
        }
        program.insns.extend(function(source).insns);
        program.functions.push(start as u32);
    }
    program
}

/// A number of the input in `r0`.
fn flag(source: &mut Source, code: &mut Builder) {
    code.load(source.pick(&[Size::B1, Size::B8]), Reg::R0, Reg::R6, 8 * source.below(8) as i16);
}

/// The number of a place in `to`.
fn get(code: &mut Builder, place: Place, to: Reg) {
    match place {
        Place::Reg(reg) => code.mov(to, reg),
        Place::Stack(at) => code.load(Size::B8, to, Reg::R10, at),
    }
}

fn put(code: &mut Builder, place: Place, from: Reg) {
    match place {
        Place::Reg(reg) => code.mov(reg, from),
        Place::Stack(at) => code.store(Size::B8, Reg::R10, at, Operand::Reg(from)),
    }
}

/// Gives a place another number.
fn give(source: &mut Source, code: &mut Builder, place: Place) {
    match source.below(5) {
        0 | 1 => code.mov_imm(Reg::R1, near(source, BUFFER - 8)),
        2 => code.mov_imm(Reg::R1, source.below(5) as i32),
        _ => {
            code.load(Size::B1, Reg::R1, Reg::R6, 8 * source.below(8) as i16);
            code.alu(Width::W64, AluOp::And, Reg::R1, Operand::Imm(source.pick(&[1, 7, 31, 56, 127])));
        }
    }
    put(code, place, Reg::R1);
}

fn change(source: &mut Source, code: &mut Builder) {
    let (to, from) = (source.pick(&PLACES), source.pick(&PLACES));
    match source.below(3) {
        0 => give(source, code, to),
        1 => {
            give(source, code, to);
            copy(source, code, to, from);
        }
        _ => copy(source, code, from, to),
    }
}

fn copy(source: &mut Source, code: &mut Builder, from: Place, to: Place) {
    get(code, from, Reg::R1);
    match source.below(8) {
        0 => code.alu(Width::W32, AluOp::Mov, Reg::R1, Operand::Reg(Reg::R1)),
        1 => code.add_imm(Reg::R1, near(source, 0)),
        2 => {
            let from = source.pick(&[Size::B1, Size::B2]);
            code.push(Insn::MovSx { width: Width::W64, from, dst: Reg::R1, src: Reg::R1 });
        }
        _ => {}
    }
    put(code, to, Reg::R1);
}

/// Something that happens on all paths.
fn happen(source: &mut Source, code: &mut Builder, calls: &mut Vec<usize>) {
    let (one, other) = (source.pick(&PLACES), source.pick(&PLACES));
    match source.below(9) {
        0 | 1 => copy(source, code, one, other),
        // A comparison, with something that is done one way alone.
        2 | 3 => {
            get(code, one, Reg::R2);
            let with = if source.chance(50) {
                get(code, other, Reg::R3);
                Operand::Reg(Reg::R3)
            } else {
                let edge = source.pick(&[0, 3, 31, BUFFER - 8]);
                Operand::Imm(near(source, edge))
            };
            let width = source.pick(&[Width::W64, Width::W64, Width::W32]);
            let over = code.jump_if(width, source.pick(&Cond::ALL), Reg::R2, with);
            if source.chance(70) {
                change(source, code);
            }
            code.land(over);
        }
        4 => {
            flag(source, code);
            get(code, one, Reg::R2);
            let over = code.jump_if(Width::W64, source.pick(&Cond::ALL), Reg::R2, Operand::Reg(Reg::R0));
            change(source, code);
            code.land(over);
        }
        5 => {
            get(code, one, Reg::R1);
            get(code, other, Reg::R2);
            let op = source.pick(&[AluOp::Add, AluOp::Sub, AluOp::And, AluOp::Or, AluOp::Rsh]);
            code.alu(Width::W64, op, Reg::R1, Operand::Reg(Reg::R2));
            put(code, one, Reg::R1);
        }
        // Parts of a number, and a place that is not known.
        6 => {
            let at = source.pick(&[-8, -16, -24]) + source.below(8) as i16;
            get(code, other, Reg::R1);
            code.store(Size::B1, Reg::R10, at, Operand::Reg(Reg::R1));
        }
        7 => {
            get(code, one, Reg::R1);
            code.alu(Width::W64, AluOp::And, Reg::R1, Operand::Imm(7));
            code.mov(Reg::R2, Reg::R10);
            code.alu(Width::W64, AluOp::Add, Reg::R2, Operand::Reg(Reg::R1));
            get(code, other, Reg::R3);
            let at = source.pick(&[-16, -24]);
            if source.chance(50) {
                code.store(Size::B1, Reg::R2, at, Operand::Reg(Reg::R3));
            } else {
                code.load(Size::B1, Reg::R3, Reg::R2, at);
                put(code, one, Reg::R3);
            }
        }
        _ => {
            get(code, one, Reg::R1);
            code.mov(Reg::R2, Reg::R10);
            calls.push(code.here());
            code.push(Insn::Exit); // becomes the call
            if source.chance(70) {
                put(code, other, Reg::R0);
            }
        }
    }
}

/// Uses a number as an offset into the buffer.
fn use_one(source: &mut Source, code: &mut Builder, open: &mut Vec<Open>) {
    get(code, source.pick(&PLACES), Reg::R7);
    if source.chance(40) {
        get(code, source.pick(&PLACES), Reg::R2);
        open.push(code.jump_if(Width::W64, Cond::Gt, Reg::R2, Operand::Imm(near(source, BUFFER - 1))));
    }
    if source.chance(30) {
        code.alu(Width::W64, AluOp::And, Reg::R7, Operand::Imm(63));
    }
    code.mov(Reg::R1, Reg::R6);
    code.alu(Width::W64, AluOp::Add, Reg::R1, Operand::Reg(Reg::R7));
    access(source, code, Size::B1, Reg::R1, 0);
}

/// A function of a number in `r1` and its caller's frame in `r2`.
fn function(source: &mut Source) -> Builder {
    let mut code = Builder::default();
    code.mov(Reg::R0, Reg::R1);
    for _ in 0..source.below(4) {
        let at = source.pick(&[-8, -16, -24]);
        match source.below(4) {
            0 => code.store(Size::B8, Reg::R2, at, Operand::Reg(Reg::R0)),
            1 => code.load(Size::B8, Reg::R0, Reg::R2, at),
            _ => {
                code.load(Size::B8, Reg::R3, Reg::R2, at);
                let with =
                    if source.chance(50) { Operand::Reg(Reg::R1) } else { Operand::Imm(near(source, 16)) };
                let over = code.jump_if(Width::W64, source.pick(&Cond::ALL), Reg::R3, with);
                match source.below(3) {
                    0 => code.mov_imm(Reg::R0, near(source, BUFFER - 8)),
                    1 => code.mov(Reg::R0, Reg::R3),
                    _ => code.store(Size::B8, Reg::R2, at, Operand::Imm(near(source, BUFFER - 8))),
                }
                code.land(over);
            }
        }
    }
    code.push(Insn::Exit);
    code
}
