//! `struct pt_regs`: r15 to rdi, the number of the system call, rip, cs, flags, rsp, ss.

pub(in super::super) const WORDS: usize = 21;
/// rdi, rsi, rdx, rcx, r8, r9.
pub(in super::super) const ARGUMENTS: [usize; 6] = [14, 13, 12, 11, 9, 8];
pub(in super::super) const RESULT: usize = 10;
pub(in super::super) const ADDRESS: usize = 16;
