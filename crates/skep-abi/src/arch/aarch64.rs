//! aarch64: `struct user_pt_regs` of `linux/ptrace.h` is x0 to x30, sp, pc and pstate.

/// Number of 64-bit words in the register set that a probe receives.
pub(crate) const PROBE_REGISTERS: usize = 34;
