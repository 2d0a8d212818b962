//! Arithmetic except division.

use skep_isa::{AluOp, Operand, Reg, RegSet, Size, Width};

use super::encode::{self, Group1, Mem, Scale, Shift, Unary};
use super::memory::place;
use super::regs::{Gpr, SCRATCH, SCRATCH2};
use super::{Emitter, gpr};
use crate::port::Arithmetic;
use crate::port::operand::Address;
use crate::port::operand::Modifier;

impl Arithmetic for Emitter<'_> {
    fn mov_imm(&mut self, dst: Reg, value: u64) {
        let dst = gpr(dst);
        if value == 0 {
            self.put(encode::zero(dst));
        } else {
            self.constant(dst, value);
        }
    }

    fn mov_reg(&mut self, width: Width, dst: Reg, src: Reg) {
        self.put_plain(Some(gpr(dst)), encode::mov_rr(width, gpr(dst), gpr(src)));
    }

    fn zero_extend(&mut self, from: Size, dst: Reg, src: Reg) {
        self.put_plain(Some(gpr(dst)), encode::movzx_rr(from, gpr(dst), gpr(src)));
    }

    fn sign_extend(&mut self, width: Width, from: Size, dst: Reg, src: Reg) {
        self.put_plain(Some(gpr(dst)), encode::movsx_rr(width, from, gpr(dst), gpr(src)));
    }

    fn neg(&mut self, width: Width, dst: Reg) {
        self.put_result(width, gpr(dst), encode::unary(Unary::Neg, width, gpr(dst)));
    }

    fn alu(&mut self, op: AluOp, width: Width, dst: Reg, src: Operand, live: RegSet) {
        match src {
            Operand::Reg(src) => self.alu_reg(op, width, dst, src, live),
            Operand::Imm(imm) => self.alu_imm(op, width, dst, imm, live),
        }
    }

    fn add3(&mut self, width: Width, dst: Reg, address: Address) {
        if self.hides_disp(address.base, address.disp) {
            self.constant(SCRATCH2, i64::from(address.disp) as u64);
            let place = match address.index {
                None => Mem::indexed(gpr(address.base), SCRATCH2, Scale::X1, 0),
                Some(_) => {
                    self.put(encode::lea(width, SCRATCH, place(Address { disp: 0, ..address })));
                    Mem::indexed(SCRATCH, SCRATCH2, Scale::X1, 0)
                }
            };
            return self.put(encode::lea(width, gpr(dst), place));
        }
        self.put_plain(Some(gpr(dst)), encode::lea(width, gpr(dst), place(address)));
    }

    fn alu_load(&mut self, op: AluOp, width: Width, dst: Reg, address: Address) {
        let (to, mem) = (gpr(dst), place(address));
        let group = match op {
            AluOp::Add => Group1::Add,
            AluOp::Sub => Group1::Sub,
            AluOp::Or => Group1::Or,
            AluOp::And => Group1::And,
            AluOp::Xor => Group1::Xor,
            _ => return self.put(encode::imul_rm(width, to, mem)),
        };
        self.put_result(width, to, encode::alu_rm(group, width, to, mem));
    }

    fn mul3(&mut self, width: Width, dst: Reg, a: Reg, imm: i32) {
        let scale = match imm {
            3 => Scale::X2,
            5 => Scale::X4,
            9 => Scale::X8,
            _ if self.mul_by_neighbour(width, gpr(dst), gpr(a), imm) => return,
            _ => return self.mul_imm(width, gpr(dst), gpr(a), imm, SCRATCH),
        };
        self.put(encode::lea(width, gpr(dst), Mem::indexed(gpr(a), gpr(a), scale, 0)));
    }

    fn rotate(&mut self, width: Width, dst: Reg, src: Reg, count: u8) {
        if dst != src {
            if self.features.bmi2 {
                let right = width.bits() as u8 - count;
                return self.put(encode::rorx(width, gpr(dst), gpr(src), right));
            }
            self.mov_reg(width, dst, src);
        }
        self.put(encode::shift_ri(Shift::Rol, width, gpr(dst), count));
    }

    fn swap_bytes(&mut self, size: Size, dst: Reg, clean: bool) {
        let dst = gpr(dst);
        match size {
            Size::B2 if clean => self.put(encode::swap16(dst)),
            Size::B1 | Size::B2 => {
                self.put(encode::bswap(Width::W32, dst));
                self.put(encode::shift_ri(Shift::Shr, Width::W32, dst, 16));
            }
            Size::B4 => self.put(encode::bswap(Width::W32, dst)),
            Size::B8 => self.put(encode::bswap(Width::W64, dst)),
        }
    }

    fn alu3(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, src: Operand) {
        unreachable!("{op:?} has two operands: {width:?} {dst:?} {a:?} {src:?}");
    }

    fn alu_modified(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, b: (Reg, Modifier)) {
        unreachable!("{op:?} takes registers as they are: {width:?} {dst:?} {a:?} {b:?}");
    }

    fn field(&mut self, width: Width, dst: Reg, a: Reg, low: u8, bits: u8) {
        unreachable!("fields take two instructions: {width:?} {dst:?} {a:?} {low} {bits}");
    }

    fn multiply_add(&mut self, minus: bool, width: Width, dst: Reg, factors: (Reg, Reg), addend: Reg) {
        unreachable!("no such instruction: {minus} {width:?} {dst:?} {factors:?} {addend:?}");
    }
}

impl Emitter<'_> {
    /// `dst = a * imm` if `imm` is one more or less than a power of two; returns whether it is. A shift and an addition
    /// take two cycles, a multiplication takes three.
    fn mul_by_neighbour(&mut self, width: Width, dst: Gpr, a: Gpr, imm: i32) -> bool {
        let (op, power) = match (imm.cast_unsigned().wrapping_add(1), imm.cast_unsigned().wrapping_sub(1)) {
            _ if imm < 0 => return false,
            (above, _) if above.is_power_of_two() => (Group1::Sub, above),
            (_, below) if below.is_power_of_two() => (Group1::Add, below),
            _ => return false,
        };
        let once = if dst == a { SCRATCH } else { a };
        self.copy(if dst == a { SCRATCH } else { dst }, a);
        self.put(encode::shift_ri(Shift::Shl, width, dst, power.trailing_zeros() as u8));
        self.put(encode::alu_rr(op, width, dst, once));
        true
    }

    fn alu_reg(&mut self, op: AluOp, width: Width, dst: Reg, src: Reg, live: RegSet) {
        let (to, from) = (gpr(dst), gpr(src));
        match op {
            AluOp::Add => self.put_result(width, to, encode::alu_rr(Group1::Add, width, to, from)),
            AluOp::Sub => self.put_result(width, to, encode::alu_rr(Group1::Sub, width, to, from)),
            AluOp::Or => self.put_result(width, to, encode::alu_rr(Group1::Or, width, to, from)),
            AluOp::And => self.put_result(width, to, encode::alu_rr(Group1::And, width, to, from)),
            AluOp::Xor => self.put_result(width, to, encode::alu_rr(Group1::Xor, width, to, from)),
            AluOp::Mul => self.put(encode::imul_rr(width, to, from)),
            AluOp::Mov => self.put(encode::mov_rr(width, to, from)),
            AluOp::Lsh => self.shift(Shift::Shl, width, to, from, live),
            AluOp::Rsh => self.shift(Shift::Shr, width, to, from, live),
            AluOp::Arsh => self.shift(Shift::Sar, width, to, from, live),
            AluOp::Div | AluOp::Mod => self.divide(op == AluOp::Mod, width, dst, Operand::Reg(src), live),
            AluOp::Sdiv | AluOp::Smod => {
                self.divide_signed(op == AluOp::Smod, width, dst, Operand::Reg(src), live)
            }
        }
    }

    fn alu_imm(&mut self, op: AluOp, width: Width, dst: Reg, imm: i32, live: RegSet) {
        let to = gpr(dst);
        // Counts are masked as the operation defines it.
        let count = imm as u8 & (width.bits() as u8 - 1);
        match op {
            AluOp::Add => self.add_imm(width, to, imm),
            // 128 is the only number whose negation is shorter.
            AluOp::Sub if self.hidden(SCRATCH, width, imm) => {
                self.put_result(width, to, encode::alu_rr(Group1::Sub, width, to, SCRATCH));
            }
            AluOp::Sub => self.put_result(
                width,
                to,
                match imm {
                    1 => encode::unary(Unary::Dec, width, to),
                    -1 => encode::unary(Unary::Inc, width, to),
                    128 => encode::alu_ri(Group1::Add, width, to, -128),
                    _ => encode::alu_ri(Group1::Sub, width, to, imm),
                },
            ),
            AluOp::Or => self.group1_imm(Group1::Or, width, to, imm, SCRATCH),
            AluOp::And => self.group1_imm(Group1::And, width, to, imm, SCRATCH),
            AluOp::Xor if imm == -1 => self.put(encode::unary(Unary::Not, width, to)),
            AluOp::Xor => self.group1_imm(Group1::Xor, width, to, imm, SCRATCH),
            AluOp::Mul => self.mul3(width, dst, dst, imm),
            AluOp::Mov => match width {
                Width::W32 => self.mov_imm(dst, u64::from(imm as u32)),
                Width::W64 => self.mov_imm(dst, i64::from(imm) as u64),
            },
            AluOp::Lsh if count == 1 => {
                self.put_result(width, to, encode::alu_rr(Group1::Add, width, to, to))
            }
            AluOp::Lsh => self.put_result(width, to, encode::shift_ri(Shift::Shl, width, to, count)),
            AluOp::Rsh => self.put_result(width, to, encode::shift_ri(Shift::Shr, width, to, count)),
            AluOp::Arsh => self.put_result(width, to, encode::shift_ri(Shift::Sar, width, to, count)),
            AluOp::Div | AluOp::Mod => self.divide(op == AluOp::Mod, width, dst, Operand::Imm(imm), live),
            AluOp::Sdiv | AluOp::Smod => {
                self.divide_signed(op == AluOp::Smod, width, dst, Operand::Imm(imm), live)
            }
        }
    }

    fn add_imm(&mut self, width: Width, to: Gpr, imm: i32) {
        if self.hidden(SCRATCH, width, imm) {
            return self.put_result(width, to, encode::alu_rr(Group1::Add, width, to, SCRATCH));
        }
        self.put_result(
            width,
            to,
            match imm {
                1 => encode::unary(Unary::Inc, width, to),
                -1 => encode::unary(Unary::Dec, width, to),
                128 => encode::alu_ri(Group1::Sub, width, to, -128),
                _ => encode::alu_ri(Group1::Add, width, to, imm),
            },
        );
    }

    /// `to op= count`. The processor masks the count as BPF does.
    fn shift(&mut self, op: Shift, width: Width, to: Gpr, count: Gpr, live: RegSet) {
        if self.features.bmi2 {
            return self.put(encode::shift_rrr(op, width, to, to, count));
        }
        // A variable count must be in `cl`.
        match (to == Gpr::RCX, count == Gpr::RCX) {
            (false, true) => self.put(encode::shift_cl(op, width, to)),
            (false, false) => {
                let keep = live.contains(Reg::R4);
                if keep {
                    self.copy(SCRATCH, Gpr::RCX);
                }
                self.put(encode::mov_rr(Width::W32, Gpr::RCX, count));
                self.put(encode::shift_cl(op, width, to));
                if keep {
                    self.copy(Gpr::RCX, SCRATCH);
                }
            }
            (true, _) => {
                self.copy(SCRATCH, Gpr::RCX);
                if count != Gpr::RCX {
                    self.put(encode::mov_rr(Width::W32, Gpr::RCX, count));
                }
                self.put(encode::shift_cl(op, width, SCRATCH));
                self.copy(Gpr::RCX, SCRATCH);
            }
        }
    }
}
