//! aarch64: `struct user_pt_regs` of `linux/ptrace.h` is x0 to x30, sp, pc and pstate.

/// Words in the registers that a probe is given.
pub(crate) const PROBE_REGISTERS: usize = 34;
