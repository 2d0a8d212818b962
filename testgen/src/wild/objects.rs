//! Probes of a verifier's knowledge of packets, map values, sizes and copied pointers.

use skep_isa::{AluOp, Cond, Imm64, Insn, Operand, Reg, Size, Width};

use crate::builder::{Builder, Open};
use crate::helpers::{ADJUST_HEAD, FILL, LOOKUP, SUM};
use crate::program::{ARRAY, Flavour, TABLE, TestProgram, maps};
use crate::source::Source;

/// A program that uses an object almost correctly.
pub(super) fn probe(source: &mut Source) -> TestProgram {
    match source.below(4) {
        0 => packet(source),
        1 => value(source),
        2 => sizes(source),
        _ => loops(source),
    }
}

/// Size in bytes of the probes' buffer.
pub(super) const BUFFER: i32 = 64;

pub(super) fn finish(mut code: Builder, open: Vec<Open>, flavour: Flavour) -> TestProgram {
    for jump in open {
        code.land(jump);
    }
    code.mov_imm(Reg::R0, 0);
    code.push(Insn::Exit);
    TestProgram { insns: code.insns, functions: vec![0], flavour }
}

/// The number, or one that differs by at most two.
pub(super) fn near(source: &mut Source, number: i32) -> i32 {
    match source.below(3) {
        0 => number + source.below(5) as i32 - 2,
        _ => number,
    }
}

/// A load or a store of that size.
pub(super) fn access(source: &mut Source, code: &mut Builder, size: Size, base: Reg, offset: i32) {
    if source.chance(50) {
        code.load(size, Reg::R0, base, offset as i16);
    } else {
        code.store(size, base, offset as i16, Operand::Imm(7));
    }
}

/// A packet access after a comparison with the packet's end, which may be off by a little or compare the wrong
/// pointer; perhaps with a variable offset, perhaps with the packet moved.
fn packet(source: &mut Source) -> TestProgram {
    let mut code = Builder::default();
    let mut open = Vec::new();
    let (context, data, end, at, limit) = (Reg::R6, Reg::R7, Reg::R8, Reg::R9, Reg::R4);
    code.mov(context, Reg::R1);
    code.load(Size::B4, data, context, 0);
    code.load(Size::B4, end, context, 4);
    code.mov(at, data);
    if source.chance(30) {
        // At least one byte, and an offset computed from it.
        code.mov(Reg::R2, data);
        code.add_imm(Reg::R2, 8);
        open.push(code.jump_if(Width::W64, Cond::Gt, Reg::R2, Operand::Reg(end)));
    }
    if source.chance(50) {
        code.load(Size::B4, Reg::R3, context, 12 + 4 * source.below(3) as i16);
        let mask = source.pick(&[3, 15, 63, 255, 0xffff, -1]);
        code.alu(source.pick(&[Width::W32, Width::W64]), AluOp::And, Reg::R3, Operand::Imm(mask));
        code.alu(Width::W64, AluOp::Add, at, Operand::Reg(Reg::R3));
    }
    let constant = source.below(16) as i32;
    code.add_imm(at, constant);
    let checked = source.between(1, 24) as i32;
    code.mov(limit, source.pick(&[at, at, at, data]));
    code.add_imm(limit, checked);
    let (cond, mirrored) = source.pick(&[
        (Cond::Gt, Cond::Lt),
        (Cond::Gt, Cond::Lt),
        (Cond::Ge, Cond::Le),
        (Cond::Lt, Cond::Gt),
        (Cond::Le, Cond::Ge),
        (Cond::Eq, Cond::Eq),
        (Cond::Ne, Cond::Ne),
    ]);
    open.push(match source.chance(50) {
        true => code.jump_if(Width::W64, cond, limit, Operand::Reg(end)),
        false => code.jump_if(Width::W64, mirrored, end, Operand::Reg(limit)),
    });
    if source.chance(25) {
        code.store(Size::B8, Reg::R10, -8, Operand::Reg(at));
    }
    if source.chance(25) {
        code.mov(Reg::R1, context);
        code.mov_imm(Reg::R2, near(source, 0) * 8);
        code.call_helper(ADJUST_HEAD);
        if source.chance(50) {
            code.load(Size::B4, at, context, 0);
        }
    }
    if source.chance(20) {
        code.load(Size::B8, at, Reg::R10, -8);
    }
    if source.chance(20) {
        code.add_imm(at, near(source, 0));
    }
    let size = source.pick(&Size::ALL);
    let target = near(source, checked - size.bytes() as i32);
    let base = if source.chance(85) { at } else { data };
    access(source, &mut code, size, base, target);
    finish(code, open, Flavour::Xdp)
}

/// A look-up: its result copied and spilled, one of the copies checked, another used.
fn value(source: &mut Source) -> TestProgram {
    let mut code = Builder::default();
    let mut open = Vec::new();
    let buffer = Reg::R9;
    code.mov(buffer, Reg::R1);
    let map = source.pick(&[ARRAY, TABLE]);
    let bytes = maps()[map as usize].value_size as i32;
    code.load(Size::B8, Reg::R1, buffer, 8 * source.below(8) as i16);
    code.store(Size::B8, Reg::R10, -8, Operand::Reg(Reg::R1));
    if source.chance(30) {
        code.store(Size::B4, Reg::R10, -8, Operand::Imm(near(source, 4)));
    }
    code.mov(Reg::R2, Reg::R10);
    code.add_imm(Reg::R2, -8);
    code.load_imm64(Reg::R1, Imm64::Map(map));
    code.call_helper(LOOKUP);
    // Copies, before and after arithmetic.
    let copies = [Reg::R0, Reg::R6, Reg::R7];
    code.mov(Reg::R6, source.pick(&[Reg::R0, Reg::R0, Reg::R10]));
    code.mov(Reg::R7, Reg::R0);
    if source.chance(40) {
        // Another look-up, which the checks of the first do not cover.
        code.mov(Reg::R8, Reg::R0);
        code.mov(Reg::R2, Reg::R10);
        code.add_imm(Reg::R2, -8);
        code.load_imm64(Reg::R1, Imm64::Map(map));
        code.call_helper(LOOKUP);
        code.mov(source.pick(&[Reg::R6, Reg::R7]), Reg::R8);
    }
    if source.chance(30) {
        code.store(Size::B8, Reg::R10, -16, Operand::Reg(source.pick(&copies)));
    }
    if source.chance(20) {
        code.add_imm(source.pick(&copies), near(source, 0));
    }
    if source.chance(85) {
        let (cond, imm) = source.pick(&[(Cond::Eq, 0), (Cond::Eq, 0), (Cond::Ne, 0), (Cond::Eq, 1)]);
        let width = if source.chance(90) { Width::W64 } else { Width::W32 };
        open.push(code.jump_if(width, cond, source.pick(&copies), Operand::Imm(imm)));
    }
    if source.chance(20) {
        code.load(Size::B8, source.pick(&copies), Reg::R10, -16);
    }
    let used = source.pick(&copies);
    let size = source.pick(&Size::ALL);
    let edge = bytes - size.bytes() as i32;
    if source.chance(50) {
        code.load(Size::B1, Reg::R3, buffer, 8 * source.below(8) as i16);
        match source.below(3) {
            0 => code.alu(Width::W64, AluOp::And, Reg::R3, Operand::Imm(near(source, 15))),
            1 => open.push(code.jump_if(Width::W64, Cond::Gt, Reg::R3, Operand::Imm(near(source, edge)))),
            _ => code.alu(Width::W64, AluOp::Mod, Reg::R3, Operand::Imm(near(source, edge + 1))),
        }
        code.alu(Width::W64, AluOp::Add, used, Operand::Reg(Reg::R3));
        access(source, &mut code, size, used, 0);
    } else {
        let target = near(source, edge);
        access(source, &mut code, size, used, target);
    }
    finish(code, open, Flavour::Buffer { len: BUFFER as u32 })
}

/// A helper call with memory and an imprecisely known size.
fn sizes(source: &mut Source) -> TestProgram {
    let mut code = Builder::default();
    let mut open = Vec::new();
    let (width, cond) =
        (source.pick(&[Width::W32, Width::W64]), source.pick(&[Cond::Gt, Cond::Sgt, Cond::Ge]));
    code.load(source.pick(&Size::ALL), Reg::R2, Reg::R1, 8 * source.below(8) as i16);
    let room = if source.chance(50) { BUFFER } else { 24 };
    let start = source.below(24) as i32;
    let most = near(source, room - start);
    match source.below(3) {
        0 => open.push(code.jump_if(width, cond, Reg::R2, Operand::Imm(most))),
        1 => code.alu(width, AluOp::And, Reg::R2, Operand::Imm(most)),
        _ => code.alu(width, AluOp::Mod, Reg::R2, Operand::Imm(most.max(1))),
    }
    if source.chance(40) {
        open.push(code.jump_if(width, Cond::Slt, Reg::R2, Operand::Imm(near(source, 1))));
    }
    if source.chance(20) {
        code.add_imm(Reg::R2, near(source, 0));
    }
    if room == BUFFER {
        code.add_imm(Reg::R1, start);
    } else {
        for offset in (-24..0).step_by(8) {
            if source.chance(85) {
                code.store(Size::B8, Reg::R10, offset, Operand::Imm(0));
            }
        }
        code.mov(Reg::R1, Reg::R10);
        code.add_imm(Reg::R1, start - 24);
    }
    code.mov_imm(Reg::R3, 1);
    code.call_helper(source.pick(&[SUM, SUM, FILL]));
    if source.chance(50) {
        code.load(Size::B8, Reg::R0, Reg::R10, -8 * source.between(1, 3) as i16);
    }
    finish(code, open, Flavour::Buffer { len: BUFFER as u32 })
}

/// A loop that moves a pointer or an offset, with paths through it that have different knowledge.
fn loops(source: &mut Source) -> TestProgram {
    let mut code = Builder::default();
    let mut open = Vec::new();
    let (at, counter, flag, bound) = (Reg::R6, Reg::R7, Reg::R8, Reg::R9);
    code.mov(at, Reg::R1);
    code.load(Size::B1, flag, Reg::R1, 8 * source.below(8) as i16);
    code.load(Size::B1, bound, Reg::R1, 8 * source.below(8) as i16);
    code.alu(Width::W64, AluOp::And, bound, Operand::Imm(source.pick(&[3, 7, 8, 15])));
    code.mov_imm(counter, 0);
    if source.chance(50) {
        // Two paths with different start values of the counter; their states look alike afterwards.
        let over = code.jump_if(Width::W64, source.pick(&Cond::ALL), flag, Operand::Imm(near(source, 16)));
        code.mov_imm(counter, source.between(1, 9) as i32);
        code.land(over);
    }
    let head = code.here();
    let step = source.pick(&[1, 2, 4, 8]);
    let size = source.pick(&Size::ALL);
    if source.chance(70) {
        code.mov(Reg::R2, at);
        if source.chance(50) {
            code.alu(Width::W64, AluOp::Add, Reg::R2, Operand::Reg(counter));
        }
        access(source, &mut code, size, Reg::R2, 0);
    } else {
        access(source, &mut code, size, at, 0);
    }
    if source.chance(40) {
        let skip = code.jump_if(Width::W64, source.pick(&Cond::ALL), flag, Operand::Imm(near(source, 100)));
        code.add_imm(source.pick(&[at, counter, flag]), step);
        code.land(skip);
    }
    if source.chance(50) {
        code.add_imm(at, step);
    }
    code.add_imm(counter, step);
    let rounds = (BUFFER - size.bytes() as i32) / step + 1;
    let limit = match source.below(3) {
        0 => Operand::Reg(bound),
        _ => Operand::Imm(near(source, step * rounds)),
    };
    let cond = source.pick(&[Cond::Lt, Cond::Lt, Cond::Slt, Cond::Le, Cond::Ne]);
    let width = source.pick(&[Width::W64, Width::W64, Width::W32]);
    code.jump_back(head, Some((width, cond, counter, limit)));
    if source.chance(30) {
        open.push(code.jump_if(Width::W64, Cond::Gt, counter, Operand::Imm(near(source, BUFFER - 8))));
        code.mov(Reg::R2, at);
        code.alu(Width::W64, AluOp::Add, Reg::R2, Operand::Reg(counter));
        access(source, &mut code, Size::B1, Reg::R2, 0);
    }
    finish(code, open, Flavour::Buffer { len: BUFFER as u32 })
}
