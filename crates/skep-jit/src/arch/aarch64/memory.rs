//! Loads and stores.
//!
//! Nothing is checked here: the verifier has proved every access except probe loads, which are declared to the fault
//! handler.

use skep_isa::{AtomicOp, Operand, Reg, RegSet, Size, Width};

use super::alu::sum;
use super::encode::{self, Imm12, Mem, Pair, Shifted, Sum};
use super::regs::{Gpr, SCRATCH, SCRATCH2};
use super::{Aarch64, Emitter};
use crate::layout::Encoding;
use crate::port::Memory;
use crate::port::operand::{Address, Part};

impl Memory for Emitter<'_> {
    fn load(&mut self, size: Size, signed: bool, dst: Reg, address: Address) {
        let mem = self.place(address, size);
        let dst = self.write(dst);
        self.put(encode::load(size, signed.then_some(Width::W64), dst, mem));
    }

    fn probe(&mut self, slot: usize, size: Size, signed: bool, dst: Reg, address: Address) {
        let mem = self.place(address, size);
        let dst = self.write(dst);
        self.put(encode::load(size, signed.then_some(Width::W64), dst, mem));
        self.code.probe_last(slot, Aarch64::STEP, dst.number());
    }

    fn store(&mut self, size: Size, address: Address, src: Operand) {
        let mem = self.place(address, size);
        let src = match src {
            Operand::Reg(src) => self.read(src),
            Operand::Imm(imm) => self.stored_in(SCRATCH2, size, imm),
        };
        self.put(encode::store(size, src, mem));
    }

    fn moves_pairs(&self, size: Size, address: Address) -> bool {
        let offset = match address.base {
            Reg::R10 => self.frame.top() as i32 + address.disp,
            _ => address.disp,
        };
        register(size).is_some_and(|width| encode::pair_fits(width, offset))
    }

    fn load_pair(&mut self, size: Size, (first, second): (Reg, Reg), address: Address) {
        let Some(width) = register(size) else { unreachable!("pairs of {size:?}") };
        let (base, offset) = self.base_and_offset(address);
        // Each in its own register, also `r0` and `r1`.
        let (first, second) = (self.stay(first), self.stay(second));
        self.put(encode::load_pair(width, first, second, base, offset, Pair::Offset));
    }

    fn store_pair(&mut self, size: Size, address: Address, (first, second): (Operand, Operand)) {
        let Some(width) = register(size) else { unreachable!("pairs of {size:?}") };
        let (base, offset) = self.base_and_offset(address);
        let mut value = |operand| match operand {
            Operand::Reg(reg) => self.read(reg),
            Operand::Imm(_) => Gpr::ZR,
        };
        let (first, second) = (value(first), value(second));
        self.put(encode::store_pair(width, first, second, base, offset, Pair::Offset));
    }

    fn load_acquire(&mut self, size: Size, dst: Reg, address: Address) {
        let base = self.pointer(address);
        let dst = self.write(dst);
        self.put(encode::load_acquire(size, dst, base));
    }

    fn store_release(&mut self, size: Size, address: Address, src: Reg) {
        let base = self.pointer(address);
        let src = self.read(src);
        self.put(encode::store_release(size, src, base));
    }

    fn atomic(&mut self, op: AtomicOp, width: Width, (base, offset): (Reg, i16), src: Reg, live: RegSet) {
        let base = self.pointer(Address::at(base, offset.into()));
        self.read_modify_write(op, width, base, src, live);
    }
}

impl Emitter<'_> {
    /// A base that may be `sp`, and the offset from it.
    fn base_and_offset(&mut self, address: Address) -> (Gpr, i32) {
        match address.base {
            Reg::R10 => (Gpr::SP, self.frame.top() as i32 + address.disp),
            base => (self.read(base), address.disp),
        }
    }

    /// The memory operand of an address. It may use [`SCRATCH`], and its computation [`SCRATCH2`].
    fn place(&mut self, address: Address, size: Size) -> Mem {
        let Address { base, index, disp } = address;
        let (base, disp) = match index {
            None => self.base_and_offset(address),
            Some(_) => (self.read(base), disp),
        };
        if let Some(index) = index {
            let reg = self.read(index.reg);
            if disp == 0 && (index.shift == 0 || 1 << index.shift == size.bytes()) {
                return Mem::Index { base, index: reg, part: index.part, scaled: index.shift > 0 };
            }
            self.put(sum(Width::W64, SCRATCH, base, reg, index));
            if !Mem::At(SCRATCH, disp).fits(size) {
                self.constant(SCRATCH2, i64::from(disp) as u64);
                self.put(encode::sum_reg(Sum::Add, Width::W64, SCRATCH, SCRATCH, Shifted::plain(SCRATCH2)));
                return Mem::At(SCRATCH, 0);
            }
            return Mem::At(SCRATCH, disp);
        }
        if Mem::At(base, disp).fits(size) {
            return Mem::At(base, disp);
        }
        if base == Gpr::SP || Imm12::new(disp.unsigned_abs().into()).is_some() {
            self.add_imm(Width::W64, SCRATCH, base, disp.into());
            return Mem::At(SCRATCH, 0);
        }
        self.constant(SCRATCH, i64::from(disp) as u64);
        Mem::Index { base, index: SCRATCH, part: Part::Whole, scaled: false }
    }

    /// An address in a register, which may be [`SCRATCH`].
    fn pointer(&mut self, address: Address) -> Gpr {
        if address.base == Reg::R10 {
            self.stack_address(SCRATCH, address.disp);
            return SCRATCH;
        }
        let base = self.read(address.base);
        if address.disp == 0 {
            return base;
        }
        self.add_imm(Width::W64, SCRATCH, base, address.disp.into());
        SCRATCH
    }

    /// A register that holds a constant to be stored, this one if it is not 0.
    pub(super) fn stored_in(&mut self, reg: Gpr, size: Size, imm: i32) -> Gpr {
        let value = match size {
            Size::B1 => u64::from(imm as u8),
            Size::B2 => u64::from(imm as u16),
            Size::B4 => u64::from(imm as u32),
            Size::B8 => i64::from(imm) as u64,
        };
        if value == 0 {
            return Gpr::ZR;
        }
        self.constant(reg, value);
        reg
    }
}

/// The width of registers that are loaded and stored in pairs.
fn register(size: Size) -> Option<Width> {
    match size {
        Size::B4 => Some(Width::W32),
        Size::B8 => Some(Width::W64),
        Size::B1 | Size::B2 => None,
    }
}
