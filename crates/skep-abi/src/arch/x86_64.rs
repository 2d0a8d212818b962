//! x86-64: `struct pt_regs` of `linux/ptrace.h` is r15 to rdi, the number of the system call, rip, cs, flags, rsp and
//! ss.

/// Number of 64-bit words in the register set that a probe receives.
pub(crate) const PROBE_REGISTERS: usize = 21;
