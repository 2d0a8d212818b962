//! Calls, and helpers that need none.

use skep_abi::{InlineArray, RunEnv};
use skep_isa::{Reg, Size, Width};

use super::Emitter;
use super::branch::Jump;
use super::encode::{self, Cc, Imm12, Mem, ShiftKind, Shifted, Sum};
use super::regs::{ENV, Gpr, SCRATCH, SCRATCH2, SIXTH};
use crate::arch::port::Calls;
use crate::layout::{Gap, Label, Target};

/// How far `BL` reaches to each side, and how far `ADR` and `ADRP` do (Arm ARM, C6.2).
const BL_REACH: u64 = (1 << 27) - 4;
const ADR_REACH: u64 = (1 << 20) - 4;
const ADRP_REACH: u64 = (1 << 32) - (1 << 13);

impl Calls for Emitter<'_> {
    fn call_local(&mut self, target: Label) {
        self.put(encode::bl(0));
        self.code.patch_last(Target::Label(target));
        self.result = true;
    }

    fn call_helper(&mut self, address: u64) {
        self.copy(SIXTH, ENV);
        if self.home.farthest(address) <= BL_REACH {
            self.put(encode::bl(0));
            self.code.patch_last(Target::Address(address));
        } else {
            self.address(SCRATCH, address);
            self.put(encode::blr(SCRATCH));
        }
        self.result = true;
    }

    fn mov_label(&mut self, dst: Reg, label: Label) {
        let dst = self.write(dst);
        self.put(encode::adrp(dst, 0));
        self.code.patch_last(Target::Label(label));
        self.put(encode::mov_sp(dst, dst));
        self.code.patch_last(Target::Label(label));
    }

    fn cpu_number(&mut self) {
        let to = self.write(Reg::R0);
        self.put(encode::load(Size::B4, None, to, Mem::At(ENV, RunEnv::CPU)));
    }

    fn mov_address(&mut self, dst: Reg, address: u64) {
        let dst = self.write(dst);
        self.address(dst, address);
    }

    fn lookup_known(&mut self, array: &InlineArray, index: u32) {
        let to = self.write(Reg::R0);
        let address = array.base.wrapping_add(u64::from(index) * u64::from(array.stride));
        self.address(to, address);
        self.add_cpu(array, to);
    }

    fn lookup(&mut self, array: &InlineArray, missing: Option<(Label, bool)>) {
        let key = self.read(Reg::R2);
        // Where `r0` is looked for by what follows a jump.
        let to = if missing.is_some() { self.stay(Reg::R0) } else { self.write(Reg::R0) };
        self.put(encode::load(Size::B4, None, SCRATCH, Mem::At(key, 0)));
        match Imm12::new(array.max_entries.into()) {
            Some(max) => self.put(encode::sum_imm_flags(Sum::Sub, Width::W32, Gpr::ZR, SCRATCH, max)),
            None => {
                self.constant(SCRATCH2, array.max_entries.into());
                let max = Shifted::plain(SCRATCH2);
                self.put(encode::sum_reg_flags(Sum::Sub, Width::W32, Gpr::ZR, SCRATCH, max));
            }
        }
        if let Some((target, wanted)) = missing {
            if wanted {
                self.constant(to, 0);
            }
            self.code.gap(Gap::Jump { jump: Jump::Flags(Cc::Hs), target });
        }
        self.address(to, array.base);
        self.add_product(to, SCRATCH, array.stride);
        self.add_cpu(array, to);
        if missing.is_none() {
            // Nothing since the comparison has changed the flags.
            self.put(encode::csel(Width::W64, to, to, Gpr::ZR, Cc::Lo));
        }
    }
}

impl Emitter<'_> {
    /// Moves an address of a value to this CPU's.
    fn add_cpu(&mut self, array: &InlineArray, to: Gpr) {
        if array.cpu_stride > 0 {
            self.put(encode::load(Size::B4, None, SCRATCH, Mem::At(ENV, RunEnv::CPU)));
            self.add_product(to, SCRATCH, array.cpu_stride);
        }
    }

    /// `to += reg * factor`, all 64 bits; the flags stay.
    fn add_product(&mut self, to: Gpr, reg: Gpr, factor: u32) {
        if factor.is_power_of_two() {
            let scaled = Shifted::by(reg, ShiftKind::Lsl, factor.trailing_zeros() as u8);
            self.put(encode::sum_reg(Sum::Add, Width::W64, to, to, scaled));
        } else {
            self.constant(SCRATCH2, factor.into());
            self.put(encode::madd(Width::W64, to, reg, SCRATCH2, to));
        }
    }

    /// An address in a register, by as few instructions as possible.
    fn address(&mut self, dst: Gpr, address: u64) {
        let constant = encode::constant(dst, address).as_slice().len();
        let farthest = self.home.farthest(address);
        if constant > 1 && farthest <= ADR_REACH {
            self.put(encode::adr(dst, 0));
            self.code.patch_last(Target::Address(address));
        } else if constant > 2 && farthest <= ADRP_REACH {
            self.put(encode::adrp(dst, 0));
            self.code.patch_last(Target::Address(address));
            self.put(encode::mov_sp(dst, dst));
            self.code.patch_last(Target::Address(address));
        } else {
            self.constant(dst, address);
        }
    }
}
