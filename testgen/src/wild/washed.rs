//! Probes of addresses as numbers, which Linux's root user may make: no number may become an address again.
//!
//! Addresses and numbers are added, masked, swapped, compared, and stored whole or in part, into the stack and
//! out of it. The generator follows which of them are still addresses, by a rule as simple as can be: an address
//! plus or minus a number is one, and so are copies of 64 bits. Everything else is a number, whatever its bits.

use skep_isa::{AluOp, ByteOrder, Cond, Imm64, Insn, Operand, Reg, Size, Width};

use super::objects::{BUFFER, finish, near};
use crate::builder::Builder;
use crate::program::{ARRAY, Flavour, GLOBALS, TestProgram};
use crate::source::Source;

const REGS: [Reg; 3] = [Reg::R7, Reg::R8, Reg::R9];
const CELLS: [i16; 2] = [-8, -16];

/// A program, and whether it uses a number as an address.
#[derive(Clone, Debug)]
pub struct Washed {
    /// The program.
    pub program: TestProgram,
    /// Whether a verifier must refuse it.
    pub uses_a_number: bool,
}

/// A program that makes numbers of addresses.
pub fn washed(source: &mut Source) -> Washed {
    let mut probe = Probe {
        source,
        code: Builder::default(),
        addresses: [false; 3],
        cells: [false; 2],
        uses_a_number: false,
    };
    probe.code.mov(Reg::R6, Reg::R1);
    probe.code.mov_imm(Reg::R0, 0);
    for cell in CELLS {
        probe.code.store(Size::B8, Reg::R10, cell, Operand::Imm(0));
    }
    for at in 0..REGS.len() {
        probe.give(at);
    }
    for _ in 0..probe.source.between(2, 12) {
        probe.step();
    }
    let result = probe.source.pick(&REGS);
    if probe.source.chance(40) {
        probe.code.store(Size::B8, Reg::R6, 0, Operand::Reg(result));
    }
    let Probe { code, uses_a_number, .. } = probe;
    Washed { program: finish(code, Vec::new(), Flavour::Buffer { len: BUFFER as u32 }), uses_a_number }
}

struct Probe<'a> {
    source: &'a mut Source,
    code: Builder,
    /// Which registers and cells hold addresses.
    addresses: [bool; 3],
    cells: [bool; 2],
    uses_a_number: bool,
}

impl Probe<'_> {
    fn any(&mut self) -> usize {
        self.source.below(REGS.len() as u32) as usize
    }

    fn give(&mut self, at: usize) {
        let reg = REGS[at];
        let kind = self.source.below(7);
        self.addresses[at] = kind < 4;
        match kind {
            0 => self.code.mov(reg, Reg::R6),
            1 => {
                self.code.mov(reg, Reg::R10);
                self.code.add_imm(reg, -16);
            }
            2 => self.code.load_imm64(reg, Imm64::MapValue { map: GLOBALS, offset: 8 }),
            3 => self.code.load_imm64(reg, Imm64::Map(ARRAY)),
            4 => {
                self.code.load(Size::B1, reg, Reg::R6, 8 * self.source.below(8) as i16);
                self.code.alu(Width::W64, AluOp::And, reg, Operand::Imm(7));
            }
            5 => self.code.load(Size::B8, reg, Reg::R6, 8 * self.source.below(8) as i16),
            _ => self.code.mov_imm(reg, near(self.source, 4)),
        }
    }

    fn step(&mut self) {
        let (at, other) = (self.any(), self.any());
        let (dst, src) = (REGS[at], REGS[other]);
        let cell = self.source.below(2) as usize;
        match self.source.below(14) {
            0 => self.give(at),
            1 => {
                self.code.mov(dst, src);
                self.addresses[at] = self.addresses[other];
            }
            2 => self.code.add_imm(dst, near(self.source, 0)),
            3 | 4 => {
                let op = self.source.pick(&[AluOp::Add, AluOp::Sub, AluOp::Sub, AluOp::Or, AluOp::Xor]);
                self.code.alu(Width::W64, op, dst, Operand::Reg(src));
                let (one, two) = (self.addresses[at], self.addresses[other]);
                self.addresses[at] = match op {
                    AluOp::Add => one != two,
                    AluOp::Sub => one && !two,
                    _ => false,
                };
            }
            5 => {
                let op = self.source.pick(&[AluOp::And, AluOp::Or, AluOp::Lsh, AluOp::Rsh, AluOp::Mul]);
                let imm = self.source.pick(&[0, 1, 3, 7, 31, -1, -8]);
                let imm = if matches!(op, AluOp::Lsh | AluOp::Rsh) { imm & 31 } else { imm };
                self.code.alu(Width::W64, op, dst, Operand::Imm(imm));
                self.addresses[at] = false;
            }
            6 => {
                match self.source.below(4) {
                    0 => self.code.push(Insn::Neg { width: Width::W64, dst }),
                    1 => self.code.push(Insn::Endian { order: ByteOrder::Swap, size: Size::B8, dst }),
                    2 => self.code.push(Insn::MovSx { width: Width::W64, from: Size::B4, dst, src: dst }),
                    _ => {
                        let op = self.source.pick(&[AluOp::Mov, AluOp::Add, AluOp::Sub]);
                        self.code.alu(Width::W32, op, dst, Operand::Reg(src));
                    }
                }
                self.addresses[at] = false;
            }
            7 => {
                self.code.store(Size::B8, Reg::R10, CELLS[cell], Operand::Reg(src));
                self.cells[cell] = self.addresses[other];
            }
            8 => {
                self.code.load(Size::B8, dst, Reg::R10, CELLS[cell]);
                self.addresses[at] = self.cells[cell];
            }
            9 => {
                let size = self.source.pick(&[Size::B4, Size::B2, Size::B1]);
                let within = self.source.below(8 / size.bytes()) as i16 * size.bytes() as i16;
                if self.source.chance(50) {
                    self.code.store(size, Reg::R10, CELLS[cell] + within, Operand::Reg(src));
                    self.cells[cell] = false;
                } else {
                    self.code.load(size, dst, Reg::R10, CELLS[cell] + within);
                    self.addresses[at] = false;
                }
            }
            10 => {
                // Through the buffer, which keeps no addresses.
                self.code.store(Size::B8, Reg::R6, 8, Operand::Reg(src));
                self.code.load(Size::B8, dst, Reg::R6, 8);
                self.addresses[at] = false;
            }
            11 | 12 => {
                let with = if self.source.chance(70) { Operand::Reg(src) } else { Operand::Imm(0) };
                let width = self.source.pick(&[Width::W64, Width::W64, Width::W32]);
                let over = self.code.jump_if(width, self.source.pick(&Cond::ALL), dst, with);
                self.code.add_imm(Reg::R0, 1);
                self.code.land(over);
            }
            _ => {
                if self.source.chance(50) {
                    self.uses_a_number |= !self.addresses[at];
                    if self.source.chance(50) {
                        self.code.load(Size::B1, Reg::R1, dst, near(self.source, 0) as i16);
                    } else {
                        self.code.store(Size::B1, dst, near(self.source, 0) as i16, Operand::Imm(7));
                    }
                }
            }
        }
    }
}
