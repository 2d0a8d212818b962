//! Calls, and inlined helpers.

use skep_abi::{InlineArray, ProgramTable, RunEnv};
use skep_isa::{Reg, Size, Width};

use super::branch::Jump;
use super::encode::{self, Cc, Group1, Mem, Scale, Shift};
use super::regs::{ENV, Gpr, SCRATCH, SCRATCH2, SIXTH};
use super::{Emitter, Hole, X86_64, gpr};
use crate::layout::{self, Assembly, Encoding, Fragment, Label};
use crate::port::{Calls, NONE_LEFT, Target};

impl Calls for Emitter<'_> {
    fn call_local(&mut self, target: Label) {
        // Another program may be in the function's place, or watch it.
        if self.options.patchable {
            self.await_path();
        }
        self.put(encode::call_rel());
        self.code.patch_last(layout::Target::Label(target));
        if self.options.patchable {
            self.resume_path();
        }
    }

    fn call_helper(&mut self, address: u64) {
        self.await_call();
        self.environment(SIXTH);
        if self.reaches(address) {
            self.put(encode::call_rel());
            self.code.patch_last(layout::Target::Address(address));
        } else {
            self.put(encode::mov_ri(Gpr::RAX, address));
            self.call_to(Gpr::RAX);
        }
        self.begin_path();
    }

    fn note_printed(&mut self, address: u64) {
        self.environment(SIXTH);
        self.address(SCRATCH, address);
        self.put(encode::store_r(Size::B8, Mem::at(SIXTH, RunEnv::PRINTED), SCRATCH));
    }

    fn mov_label(&mut self, dst: Reg, label: Label) {
        self.put(encode::lea_rip(gpr(dst)));
        self.code.patch_last(layout::Target::Label(label));
    }

    fn cpu_number(&mut self) {
        self.load_cpu(Gpr::RAX);
    }

    fn thrown(&mut self, dst: Reg) {
        self.load_environment(gpr(dst), RunEnv::THROWN);
    }

    fn set_thrown(&mut self, thrown: bool) {
        let environment = if self.counts { SCRATCH } else { ENV };
        self.environment(environment);
        self.put(encode::store_i(Size::B4, Mem::at(environment, RunEnv::THROWN), thrown.into()));
    }

    fn charge(&mut self, weight: u32, negative: Label) {
        let environment = if self.counts { SCRATCH } else { ENV };
        self.environment(environment);
        let units = Mem::at(environment, RunEnv::UNITS);
        self.put(encode::alu_mi(Group1::Sub, Width::W32, units, weight as i32));
        self.code.fragment(Fragment::Jump { jump: Jump::If(Cc::Negative), target: negative });
    }

    fn add_one(&mut self, address: u64) {
        self.address(SCRATCH, address);
        self.put(encode::alu_mi(Group1::Add, Width::W64, Mem::at(SCRATCH, 0), 1));
    }

    fn poll(&mut self, address: u64, go_on: Label) {
        // An even number, so that the stack stays aligned.
        const CLOBBERED: [Gpr; 6] = [Gpr::RAX, Gpr::RDI, Gpr::RSI, Gpr::RDX, Gpr::RCX, Gpr::R8];
        for reg in CLOBBERED {
            self.put(encode::push(reg));
        }
        self.call_helper(address);
        self.put(encode::test_rr(Width::W32, Gpr::RAX, Gpr::RAX));
        for reg in CLOBBERED.into_iter().rev() {
            self.put(encode::pop(reg)); // the flags stay
        }
        self.code.fragment(Fragment::Jump { jump: Jump::If(Cc::Equal), target: go_on });
    }

    fn mov_address(&mut self, dst: Reg, address: u64) {
        self.address(gpr(dst), address);
    }

    fn tail_call_site(&mut self, behind: Label) -> Option<Vec<u8>> {
        self.await_path();
        if self.frame.is_empty() {
            self.put(encode::test_ri(Width::W32, ENV, 1 << NONE_LEFT));
            self.code.fragment(Fragment::Jump { jump: Jump::If(Cc::NotEqual), target: behind });
            self.put(encode::alu_ri(Group1::Add, Width::W64, ENV, 1));
            self.code.fragment(Fragment::Site);
            self.put(encode::alu_ri(Group1::Sub, Width::W64, ENV, 1));
            return None;
        }
        self.code.fragment(Fragment::Site);
        let code = std::mem::replace(&mut self.code, Assembly::new(0, 8));
        let exhausted = self.count();
        self.unwind();
        self.land_behind(exhausted, X86_64::SITE);
        Some(std::mem::replace(&mut self.code, code).plain())
    }

    fn tail_call(&mut self, target: Target, extended: bool) {
        self.await_path();
        let index = if extended { gpr(Reg::R3) } else { SCRATCH };
        if !matches!(target, Target::At(_)) && !extended {
            self.put(encode::mov_rr(Width::W32, index, gpr(Reg::R3)));
        }
        // Comparisons and their jumps stand together: then they are one operation.
        let (outside, entry) = match target {
            Target::At(address) => {
                self.address(SCRATCH, address);
                (None, Mem::at(SCRATCH, 0))
            }
            Target::Table(table) => {
                self.plain_imm(Group1::Cmp, Width::W32, index, table.len as i32, SCRATCH2);
                let outside = self.skip(Some(Cc::AboveOrEqual));
                self.await_path();
                self.address(SCRATCH2, table.entries);
                (Some(outside), Mem::indexed(SCRATCH2, index, Scale::X8, 0))
            }
            Target::Found => {
                let table = gpr(Reg::R2);
                self.put(encode::alu_rm(Group1::Cmp, Width::W32, index, Mem::at(table, ProgramTable::LEN)));
                let outside = self.skip(Some(Cc::AboveOrEqual));
                self.await_path();
                self.put(encode::load(Size::B8, false, SCRATCH2, Mem::at(table, ProgramTable::ENTRIES)));
                (Some(outside), Mem::indexed(SCRATCH2, index, Scale::X8, 0))
            }
        };
        self.put(encode::load(Size::B8, false, SCRATCH, entry));
        self.put(encode::test_rr(Width::W64, SCRATCH, SCRATCH));
        let empty = self.skip(Some(Cc::Equal));
        let exhausted = self.count();
        self.unwind();
        self.jump_to(SCRATCH);
        for hole in [outside, Some(empty), Some(exhausted)].into_iter().flatten() {
            self.land(hole);
        }
    }

    fn lookup_known(&mut self, array: &InlineArray, index: u32) {
        let address = array.base.wrapping_add(u64::from(index) * u64::from(array.stride));
        self.address(Gpr::RAX, address);
        self.add_cpu(array);
    }

    fn lookup(&mut self, array: &InlineArray, missing: Option<(Label, bool)>) {
        self.put(encode::load(Size::B4, false, SCRATCH, Mem::at(gpr(Reg::R2), 0)));
        if missing.is_none_or(|(_, wanted)| wanted) {
            self.put(encode::zero(Gpr::RAX));
        }
        self.plain_imm(Group1::Cmp, Width::W32, SCRATCH, array.max_entries as i32, SCRATCH2);
        self.set_ones();
        let hole = match missing {
            Some((target, _)) => {
                // Where it is taken by mistake, `r0` is null, which leads nowhere.
                self.code.fragment(Fragment::Jump { jump: Jump::If(Cc::AboveOrEqual), target });
                None
            }
            None => Some(self.skip(Some(Cc::AboveOrEqual))),
        };
        self.stayed(Cc::AboveOrEqual);
        let scale = match array.stride {
            1 => Some(Scale::X1),
            2 => Some(Scale::X2),
            4 => Some(Scale::X4),
            8 => Some(Scale::X8),
            _ => None,
        };
        match scale {
            Some(scale) => {
                self.address(Gpr::RAX, array.base);
                self.put(encode::lea(Width::W64, Gpr::RAX, Mem::indexed(Gpr::RAX, SCRATCH, scale, 0)));
            }
            None => {
                self.scale(SCRATCH, array.stride);
                self.address(Gpr::RAX, array.base);
                self.put(encode::alu_rr(Group1::Add, Width::W64, Gpr::RAX, SCRATCH));
            }
        }
        self.add_cpu(array);
        if let Some(hole) = hole {
            self.land(hole);
        }
    }
}

impl Emitter<'_> {
    /// Counts a tail call. Returns the jump that is taken if none is left.
    fn count(&mut self) -> Hole {
        self.put(encode::test_ri(Width::W32, ENV, 1 << NONE_LEFT));
        let exhausted = self.skip(Some(Cc::NotEqual));
        self.put(encode::alu_ri(Group1::Add, Width::W64, ENV, 1));
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
        self.put(encode::load(Size::B4, false, dst, Mem::at(environment, offset)));
    }

    /// Moves `r0` to this CPU's values.
    fn add_cpu(&mut self, array: &InlineArray) {
        if array.cpu_stride > 0 {
            self.load_cpu(SCRATCH);
            self.scale(SCRATCH, array.cpu_stride);
            self.put(encode::alu_rr(Group1::Add, Width::W64, Gpr::RAX, SCRATCH));
        }
    }

    /// `reg *= factor`, for a register whose upper half is zero.
    fn scale(&mut self, reg: Gpr, factor: u32) {
        if factor.is_power_of_two() {
            if factor > 1 {
                self.put(encode::shift_ri(Shift::Shl, Width::W64, reg, factor.trailing_zeros() as u8));
            }
        } else if let Ok(factor) = i32::try_from(factor) {
            self.mul_imm(Width::W64, reg, reg, factor, SCRATCH2);
        } else {
            self.constant(SCRATCH2, factor.into());
            self.put(encode::imul_rr(Width::W64, reg, SCRATCH2));
        }
    }

    fn address(&mut self, dst: Gpr, address: u64) {
        let immediate = encode::mov_ri(dst, address);
        let relative = encode::lea_rip(dst);
        if relative.len() < immediate.len() && self.reaches(address) {
            self.put(relative);
            self.code.patch_last(layout::Target::Address(address));
        } else {
            self.put(immediate);
        }
    }
}
