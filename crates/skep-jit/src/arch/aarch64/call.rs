//! Calls, and inlined helpers.

use skep_abi::{InlineArray, ProgramTable, RunEnv};
use skep_isa::{Reg, Size, Width};

use super::branch::Jump;
use super::encode::{self, Cc, Imm12, Mem, Pair, ShiftKind, Shifted, Sum, Word};
use super::regs::{self, ENV, Gpr, RESULT, SCRATCH, SCRATCH2, SIXTH};
use super::{Aarch64, Emitter};
use crate::layout::{self, Assembly, Encoding, Fragment, Label};
use crate::port::operand::Part;
use crate::port::{Calls, NONE_LEFT, Target};

/// How far `BL` reaches to each side, and how far `ADR` and `ADRP` do (Arm ARM, C6.2).
const BL_REACH: u64 = (1 << 27) - 4;
const ADR_REACH: u64 = (1 << 20) - 4;
const ADRP_REACH: u64 = (1 << 32) - (1 << 13);

impl Calls for Emitter<'_> {
    fn call_local(&mut self, target: Label) {
        // Another program may be in the function's place, or watch it.
        if self.options.patchable {
            self.await_path();
        }
        self.put(encode::bl(0));
        self.code.patch_last(layout::Target::Label(target));
        self.result = true;
        if self.options.patchable {
            self.resume_path();
        }
    }

    fn call_helper(&mut self, address: u64) {
        self.await_call();
        self.environment(SIXTH);
        if self.home.farthest(address) <= BL_REACH {
            self.put(encode::bl(0));
            self.code.patch_last(layout::Target::Address(address));
        } else {
            self.address(SCRATCH, address);
            self.put(encode::blr(SCRATCH));
        }
        self.begin_path();
        self.result = true;
    }

    fn note_printed(&mut self, address: u64) {
        self.environment(SIXTH);
        self.address(SCRATCH, address);
        self.put(encode::store(Size::B8, SCRATCH, Mem::At(SIXTH, RunEnv::PRINTED)));
    }

    fn mov_label(&mut self, dst: Reg, label: Label) {
        let dst = self.write(dst);
        self.put(encode::adrp(dst, 0));
        self.code.patch_last(layout::Target::Label(label));
        self.put(encode::mov_sp(dst, dst));
        self.code.patch_last(layout::Target::Label(label));
    }

    fn cpu_number(&mut self) {
        let to = self.write(Reg::R0);
        self.load_cpu(to);
    }

    fn thrown(&mut self, dst: Reg) {
        let to = self.write(dst);
        self.load_environment(to, RunEnv::THROWN);
    }

    fn set_thrown(&mut self, thrown: bool) {
        let environment = if self.counts { SCRATCH } else { ENV };
        self.environment(environment);
        let value = if thrown { SCRATCH2 } else { Gpr::ZR };
        if thrown {
            self.constant(value, 1);
        }
        self.put(encode::store(Size::B4, value, Mem::At(environment, RunEnv::THROWN)));
    }

    fn charge(&mut self, weight: u32, negative: Label) {
        let environment = if self.counts { SCRATCH2 } else { ENV };
        self.environment(environment);
        let units = Mem::At(environment, RunEnv::UNITS);
        self.put(encode::load(Size::B4, None, SCRATCH, units));
        match Imm12::new(weight.into()) {
            Some(weight) => self.put(encode::sum_imm_flags(Sum::Sub, Width::W32, SCRATCH, SCRATCH, weight)),
            None => debug_assert!(false, "weights are immediates"),
        }
        self.put(encode::store(Size::B4, SCRATCH, units));
        self.code.fragment(Fragment::Jump { jump: Jump::Flags(Cc::Mi), target: negative });
    }

    fn add_one(&mut self, address: u64) {
        self.address(SCRATCH2, address);
        self.put(encode::load(Size::B8, None, SCRATCH, Mem::At(SCRATCH2, 0)));
        self.add_imm(Width::W64, SCRATCH, SCRATCH, 1);
        self.put(encode::store(Size::B8, SCRATCH, Mem::At(SCRATCH2, 0)));
    }

    fn poll(&mut self, address: u64, go_on: Label) {
        const CLOBBERED: [(Gpr, Gpr); 3] = [(Gpr::X0, Gpr::X1), (Gpr::X2, Gpr::X3), (Gpr::X4, Gpr::X7)];
        for (a, b) in CLOBBERED {
            self.put(encode::store_pair(Width::W64, a, b, Gpr::SP, -16, Pair::Pre));
        }
        self.call_helper(address);
        self.result = false;
        self.copy(SCRATCH, RESULT);
        for (a, b) in CLOBBERED.into_iter().rev() {
            self.put(encode::load_pair(Width::W64, a, b, Gpr::SP, 16, Pair::Post));
        }
        let jump = Jump::Zero { nonzero: false, width: Width::W32, reg: SCRATCH };
        self.code.fragment(Fragment::Jump { jump, target: go_on });
    }

    fn mov_address(&mut self, dst: Reg, address: u64) {
        let dst = self.write(dst);
        self.address(dst, address);
    }

    fn tail_call_site(&mut self, behind: Label) -> Option<Vec<u8>> {
        self.result = false;
        self.await_path();
        if self.frame.is_empty() {
            let jump = Jump::Bit { set: true, reg: ENV, bit: NONE_LEFT as u8 };
            self.code.fragment(Fragment::Jump { jump, target: behind });
            self.add_imm(Width::W64, ENV, ENV, 1);
            self.code.fragment(Fragment::Site);
            self.add_imm(Width::W64, ENV, ENV, -1);
            return None;
        }
        self.code.fragment(Fragment::Site);
        let code = std::mem::replace(&mut self.code, Assembly::new(0, 8));
        let exhausted = self.count();
        self.unwind();
        self.land(exhausted, Aarch64::SITE);
        Some(std::mem::replace(&mut self.code, code).plain())
    }

    fn tail_call(&mut self, target: Target, _: bool) {
        self.result = false;
        self.await_path();
        let index = regs::gpr(Reg::R3);
        let outside = |emit: &mut Self| Some(emit.hole(|distance| encode::b_cond(Cc::Hs, distance)));
        let entry = Mem::Index { base: SCRATCH2, index, part: Part::Unsigned, scaled: true };
        let (outside, entry) = match target {
            Target::At(address) => {
                self.address(SCRATCH, address);
                (None, Mem::At(SCRATCH, 0))
            }
            Target::Table(table) => {
                self.compare_index(index, table.len);
                let outside = outside(self);
                self.await_path();
                self.address(SCRATCH2, table.entries);
                (outside, entry)
            }
            Target::Found => {
                let table = regs::gpr(Reg::R2);
                self.put(encode::load(Size::B4, None, SCRATCH, Mem::At(table, ProgramTable::LEN)));
                let len = Shifted::plain(SCRATCH);
                self.put(encode::sum_reg_flags(Sum::Sub, Width::W32, Gpr::ZR, index, len));
                let outside = outside(self);
                self.await_path();
                self.put(encode::load(Size::B8, None, SCRATCH2, Mem::At(table, ProgramTable::ENTRIES)));
                (outside, entry)
            }
        };
        self.put(encode::load(Size::B8, None, SCRATCH, entry));
        let empty = self.hole(|distance| encode::cbz(false, Width::W64, SCRATCH, distance));
        let exhausted = self.count();
        self.unwind();
        self.put(encode::br(SCRATCH));
        for hole in [outside, Some(empty), Some(exhausted)].into_iter().flatten() {
            self.land(hole, 0);
        }
    }

    fn lookup_known(&mut self, array: &InlineArray, index: u32) {
        let to = self.write(Reg::R0);
        let address = array.base.wrapping_add(u64::from(index) * u64::from(array.stride));
        self.address(to, address);
        self.add_cpu(array, to);
    }

    fn lookup(&mut self, array: &InlineArray, missing: Option<(Label, bool)>) {
        let key = self.read(Reg::R2);
        // The place of `r0` after a jump.
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
            // Where it is taken by mistake, `r0` is null, which leads nowhere.
            self.code.fragment(Fragment::Jump { jump: Jump::Flags(Cc::Hs), target });
            self.stayed(Cc::Hs);
        }
        self.address(to, array.base);
        self.add_product(to, SCRATCH, array.stride);
        self.add_cpu(array, to);
        if missing.is_none() {
            // Nothing since the comparison has changed the flags.
            self.put(encode::csel(Width::W64, to, to, Gpr::ZR, Cc::Lo));
            if self.options.mask_speculation {
                self.put(encode::csdb());
            }
        }
    }
}

/// A branch without its distance.
pub(super) struct Hole {
    at: usize,
    branch: fn(i64) -> Word,
}

impl Emitter<'_> {
    /// Compares the lower half of a register with the length of a table.
    fn compare_index(&mut self, index: Gpr, len: u32) {
        match Imm12::new(len.into()) {
            Some(len) => self.put(encode::sum_imm_flags(Sum::Sub, Width::W32, Gpr::ZR, index, len)),
            None => {
                self.constant(SCRATCH, len.into());
                let len = Shifted::plain(SCRATCH);
                self.put(encode::sum_reg_flags(Sum::Sub, Width::W32, Gpr::ZR, index, len));
            }
        }
    }

    /// Counts a tail call. Returns the branch that is taken if none is left.
    fn count(&mut self) -> Hole {
        let exhausted = self.hole(|distance| encode::tbz(true, ENV, NONE_LEFT as u8, distance));
        self.add_imm(Width::W64, ENV, ENV, 1);
        exhausted
    }

    /// `dst` = the number of the CPU.
    fn load_cpu(&mut self, dst: Gpr) {
        self.load_environment(dst, RunEnv::CPU);
    }

    /// `dst` = the four bytes at that offset of the environment.
    fn load_environment(&mut self, dst: Gpr, offset: i32) {
        let environment = if self.counts { dst } else { ENV };
        if self.counts {
            self.environment(dst);
        }
        self.put(encode::load(Size::B4, None, dst, Mem::At(environment, offset)));
    }

    /// A forward branch to [`Emitter::land`]; no fragment may be in between.
    pub(super) fn hole(&mut self, branch: fn(i64) -> Word) -> Hole {
        let at = self.code.here();
        self.put(branch(0));
        Hole { at, branch }
    }

    /// A branch over this number of bytes that are not emitted yet.
    pub(super) fn land(&mut self, hole: Hole, bytes: u32) {
        let distance = (self.code.here() - hole.at) as i64 + i64::from(bytes);
        for (at, byte) in (hole.at..).zip((hole.branch)(distance).0.to_le_bytes()) {
            *self.code.byte_mut(at) = byte;
        }
    }

    /// Moves an address of a value to this CPU's.
    fn add_cpu(&mut self, array: &InlineArray, to: Gpr) {
        if array.cpu_stride > 0 {
            self.load_cpu(SCRATCH);
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

    /// Loads an address into a register with as few instructions as possible.
    fn address(&mut self, dst: Gpr, address: u64) {
        let constant = encode::constant(dst, address).as_slice().len();
        let farthest = self.home.farthest(address);
        if constant > 1 && farthest <= ADR_REACH {
            self.put(encode::adr(dst, 0));
            self.code.patch_last(layout::Target::Address(address));
        } else if constant > 2 && farthest <= ADRP_REACH {
            self.put(encode::adrp(dst, 0));
            self.code.patch_last(layout::Target::Address(address));
            self.put(encode::mov_sp(dst, dst));
            self.code.patch_last(layout::Target::Address(address));
        } else {
            self.constant(dst, address);
        }
    }
}
