//! Probes of the operations that a verifier allows on stale addresses.

use skep_isa::{AluOp, Cond, Insn, Operand, Reg, Size, Width};

use super::objects::near;
use crate::builder::Builder;
use crate::helpers::ADJUST_HEAD;
use crate::program::{Flavour, TestProgram};
use crate::source::Source;

/// A packet that moves, perhaps twice, and pointers from before and after that are compared, subtracted, moved,
/// copied and spilled. The result encodes the outcome of each comparison, and one of the values.
pub fn stale(source: &mut Source) -> TestProgram {
    let mut code = Builder::default();
    let (context, data, end, at, fresh) = (Reg::R6, Reg::R7, Reg::R8, Reg::R9, Reg::R4);
    code.mov(context, Reg::R1);
    code.load(Size::B4, data, context, 0);
    code.load(Size::B4, end, context, 4);
    code.mov(at, data);
    code.add_imm(at, source.below(16) as i32);
    if source.chance(40) {
        masked(source, &mut code, at);
    }
    code.store(Size::B8, Reg::R10, -8, Operand::Reg(source.pick(&[data, end, at])));
    move_packet(source, &mut code);
    if source.chance(40) {
        code.load(Size::B4, source.pick(&[data, end, at]), context, 0);
        if source.chance(60) {
            move_packet(source, &mut code);
        }
    }
    code.load(Size::B4, fresh, context, 0);
    code.load(Size::B8, Reg::R5, Reg::R10, -8);
    code.mov_imm(Reg::R0, 0);
    let values = [data, end, at, fresh, Reg::R5];
    for step in 0..source.between(1, 6) {
        let (one, other) = (source.pick(&values), source.pick(&values));
        match source.below(8) {
            0..=3 => {
                let (number, any) = (near(source, 0), source.pick(&Cond::ALL));
                let operand = source.pick(&[Operand::Imm(0), Operand::Reg(other), Operand::Imm(number)]);
                let cond = source.pick(&[Cond::Eq, Cond::Ne, any]);
                let width = if source.chance(85) { Width::W64 } else { Width::W32 };
                let open = code.jump_if(width, cond, one, operand);
                code.add_imm(Reg::R0, 1 << step);
                code.land(open);
            }
            4 => code.mov(one, other),
            5 => code.alu(
                source.pick(&[Width::W32, Width::W64, Width::W64]),
                AluOp::Sub,
                one,
                Operand::Reg(other),
            ),
            6 => masked(source, &mut code, one),
            _ => {
                let op = source.pick(&[AluOp::Add, AluOp::Add, AluOp::And, AluOp::Rsh, AluOp::Mov]);
                code.alu(
                    source.pick(&[Width::W32, Width::W64, Width::W64]),
                    op,
                    one,
                    Operand::Imm(source.pick(&[1, 4, 31, 0x1fff_ffff])),
                );
            }
        }
    }
    if source.chance(50) {
        code.alu(Width::W64, AluOp::Add, Reg::R0, Operand::Reg(source.pick(&values)));
    }
    code.push(Insn::Exit);
    TestProgram { insns: code.insns, functions: vec![0], flavour: Flavour::Xdp }
}

/// Adds a number from the context, perhaps bounded.
fn masked(source: &mut Source, code: &mut Builder, to: Reg) {
    code.load(Size::B4, Reg::R3, Reg::R6, 12);
    let mask = source.pick(&[7, 255, 0x1fff_ffff, -1]);
    code.alu(Width::W64, AluOp::And, Reg::R3, Operand::Imm(mask));
    code.alu(Width::W64, AluOp::Add, to, Operand::Reg(Reg::R3));
}

fn move_packet(source: &mut Source, code: &mut Builder) {
    code.mov(Reg::R1, Reg::R6);
    code.mov_imm(Reg::R2, near(source, 0) * 8);
    code.call_helper(ADJUST_HEAD);
}
