//! Probes of pruning: what a verifier remembers of one path while it walks another.
//!
//! ```text
//!          if flag ... goto second
//!   first:   prepare, one way           both ways have the same kind, and may be safe or not
//!            goto meet
//!   second:  prepare, another way
//!   meet:    something else
//!            use the prepared object
//! ```

use skep_isa::{AluOp, Cond, Imm64, Operand, Reg, Size, Width};

use super::objects::{BUFFER, access, finish, near};
use crate::builder::{Builder, Open};
use crate::helpers::LOOKUP;
use crate::program::{Flavour, TABLE, TestProgram, maps};
use crate::source::Source;

/// The kind of object that is prepared and used.
#[derive(Clone, Copy)]
enum Theme {
    /// A number in `r7`, used as an offset.
    Number,
    /// A number on the stack, used as an offset.
    Spilled,
    /// A copy of a number: one is compared, the other used.
    Copy,
    /// Bytes of the stack.
    Stack,
    /// The result of a look-up, compared with null or not.
    Value,
    /// Two results of look-ups, equal or not: one is compared, the other used.
    TwoValues,
    /// The packet, compared with its end or not.
    Packet,
}

pub(super) fn probe(source: &mut Source) -> TestProgram {
    let theme = source.pick(&[
        Theme::Number,
        Theme::Spilled,
        Theme::Copy,
        Theme::Stack,
        Theme::Value,
        Theme::TwoValues,
        Theme::Packet,
    ]);
    let (mut code, mut open) = (Builder::default(), Vec::new());
    let flavour = match theme {
        Theme::Packet => Flavour::Xdp,
        _ => Flavour::Buffer { len: BUFFER as u32 },
    };
    begin(source, &mut code, theme);
    let flag = near(source, 16);
    let second = code.jump_if(Width::W64, source.pick(&Cond::ALL), Reg::R9, Operand::Imm(flag));
    prepare(source, &mut code, &mut open, theme);
    let meet = code.jump(false);
    code.land(second);
    prepare(source, &mut code, &mut open, theme);
    code.land(meet);
    for _ in 0..source.below(3) {
        code.mov_imm(Reg::R1, 1);
        let over = code.jump_if(Width::W64, source.pick(&Cond::ALL), Reg::R9, Operand::Imm(flag));
        code.mov_imm(Reg::R1, 2);
        code.land(over);
    }
    use_it(source, &mut code, &mut open, theme);
    finish(code, open, flavour)
}

/// The common start of both ways: `r6` is the buffer or the packet, `r8` its end, `r9` a flag; `r7` and `r8` are
/// initialised.
fn begin(source: &mut Source, code: &mut Builder, theme: Theme) {
    if let Theme::Packet = theme {
        code.load(Size::B4, Reg::R6, Reg::R1, 0);
        code.load(Size::B4, Reg::R8, Reg::R1, 4);
        code.load(Size::B4, Reg::R9, Reg::R1, 16);
        return;
    }
    code.mov(Reg::R6, Reg::R1);
    load_number(source, code, Reg::R9);
    match theme {
        Theme::Value => look_up(source, code, Reg::R7),
        Theme::TwoValues => {
            look_up(source, code, Reg::R7);
            look_up(source, code, Reg::R8);
        }
        Theme::Stack if source.chance(30) => code.store(Size::B4, Reg::R10, -8, Operand::Imm(1)),
        _ => {}
    }
}

fn load_number(source: &mut Source, code: &mut Builder, dst: Reg) {
    let size = source.pick(&[Size::B1, Size::B1, Size::B8]);
    code.load(size, dst, Reg::R6, 8 * source.below(8) as i16);
}

fn look_up(source: &mut Source, code: &mut Builder, dst: Reg) {
    code.load(Size::B8, Reg::R1, Reg::R6, 8 * source.below(8) as i16);
    code.store(Size::B8, Reg::R10, -64, Operand::Reg(Reg::R1));
    code.mov(Reg::R2, Reg::R10);
    code.add_imm(Reg::R2, -64);
    code.load_imm64(Reg::R1, Imm64::Map(TABLE));
    code.call_helper(LOOKUP);
    code.mov(dst, Reg::R0);
}

/// One of the ways.
fn prepare(source: &mut Source, code: &mut Builder, open: &mut Vec<Open>, theme: Theme) {
    match theme {
        Theme::Number | Theme::Spilled => {
            let edge = near(source, BUFFER - 8);
            match source.below(6) {
                0 => code.mov_imm(Reg::R7, edge),
                1 => code.mov_imm(Reg::R7, source.below(BUFFER as u32) as i32),
                2 => {
                    load_number(source, code, Reg::R7);
                    code.alu(Width::W64, AluOp::And, Reg::R7, Operand::Imm(source.pick(&[3, 31, 56, 63])));
                }
                3 => {
                    load_number(source, code, Reg::R7);
                    let cond = source.pick(&[Cond::Gt, Cond::Sgt, Cond::Ge]);
                    open.push(code.jump_if(Width::W64, cond, Reg::R7, Operand::Imm(edge)));
                }
                4 => load_number(source, code, Reg::R7),
                _ => {
                    load_number(source, code, Reg::R7);
                    let cond = source.pick(&[Cond::Slt, Cond::Lt]);
                    open.push(code.jump_if(Width::W64, cond, Reg::R7, Operand::Imm(near(source, 0))));
                    open.push(code.jump_if(Width::W32, Cond::Gt, Reg::R7, Operand::Imm(edge)));
                }
            }
            if let Theme::Spilled = theme {
                let size = source.pick(&[Size::B8, Size::B8, Size::B1]);
                let zero = source.chance(40);
                if zero {
                    code.store(Size::B8, Reg::R10, -8, Operand::Imm(0));
                }
                if !zero || source.chance(50) {
                    code.store(size, Reg::R10, -8, Operand::Reg(Reg::R7));
                }
                code.mov_imm(Reg::R7, 0);
            }
        }
        Theme::Copy => {
            load_number(source, code, Reg::R7);
            match source.below(4) {
                0 => load_number(source, code, Reg::R8),
                1 => code.alu(Width::W32, AluOp::Mov, Reg::R8, Operand::Reg(Reg::R7)),
                _ => code.mov(Reg::R8, Reg::R7),
            }
            if source.chance(30) {
                code.add_imm(source.pick(&[Reg::R7, Reg::R8]), near(source, 0));
            }
        }
        Theme::Stack => {
            for offset in [-8, -16] {
                if source.chance(70) {
                    let size = source.pick(&[Size::B8, Size::B8, Size::B4, Size::B1]);
                    code.store(size, Reg::R10, offset, Operand::Imm(5));
                }
            }
        }
        Theme::Value => {
            if source.chance(70) {
                let cond = source.pick(&[Cond::Eq, Cond::Eq, Cond::Eq, Cond::Ne]);
                open.push(code.jump_if(Width::W64, cond, Reg::R7, Operand::Imm(0)));
            }
        }
        Theme::TwoValues => {
            match source.below(3) {
                0 => code.mov(Reg::R8, Reg::R7),
                1 => code.mov(Reg::R7, Reg::R8),
                _ => {}
            }
            if source.chance(30) {
                open.push(code.jump_if(Width::W64, Cond::Eq, Reg::R7, Operand::Imm(0)));
            }
        }
        Theme::Packet => {
            code.mov(Reg::R7, Reg::R6);
            let checked = near(source, 20);
            match source.below(3) {
                0 => {}
                _ => {
                    code.mov(Reg::R2, Reg::R7);
                    code.add_imm(Reg::R2, checked);
                    open.push(code.jump_if(Width::W64, Cond::Gt, Reg::R2, Operand::Reg(Reg::R8)));
                }
            }
        }
    }
}

/// The use after the ways have met.
fn use_it(source: &mut Source, code: &mut Builder, open: &mut Vec<Open>, theme: Theme) {
    let size = source.pick(&Size::ALL);
    let offset = match theme {
        Theme::Number => Some(Reg::R7),
        Theme::Spilled => {
            code.load(source.pick(&[Size::B8, Size::B1]), Reg::R7, Reg::R10, -8);
            Some(Reg::R7)
        }
        Theme::Copy => {
            let edge = near(source, BUFFER - size.bytes() as i32);
            open.push(code.jump_if(Width::W64, Cond::Gt, Reg::R7, Operand::Imm(edge)));
            Some(Reg::R8)
        }
        _ => None,
    };
    if let Some(offset) = offset {
        code.alu(Width::W64, AluOp::Add, Reg::R6, Operand::Reg(offset));
        return access(source, code, size, Reg::R6, 0);
    }
    match theme {
        Theme::Stack => {
            let offset = source.pick(&[-8, -16]);
            code.load(size, Reg::R0, Reg::R10, offset);
        }
        Theme::Packet => {
            let target = near(source, 20 - size.bytes() as i32);
            access(source, code, size, Reg::R7, target);
        }
        _ => {
            if let Theme::TwoValues = theme {
                open.push(code.jump_if(Width::W64, Cond::Eq, Reg::R7, Operand::Imm(0)));
            }
            let used = if source.chance(30) { Reg::R7 } else { Reg::R8 };
            let used = if let Theme::TwoValues = theme { used } else { Reg::R7 };
            let target = near(source, maps()[TABLE as usize].value_size as i32 - size.bytes() as i32);
            access(source, code, size, used, target);
        }
    }
}
