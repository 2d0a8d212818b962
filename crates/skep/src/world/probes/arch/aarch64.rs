//! `struct user_pt_regs`: x0 to x30, sp, pc, pstate.

pub(in super::super) const WORDS: usize = 34;
pub(in super::super) const ARGUMENTS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
pub(in super::super) const RESULT: usize = 0;
pub(in super::super) const ADDRESS: usize = 32;
