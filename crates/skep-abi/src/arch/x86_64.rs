//! x86-64: `struct pt_regs` of `linux/ptrace.h` is r15 to rdi, the number of the system call, rip, cs, flags, rsp and
//! ss.

/// Words in the registers that a probe is given.
pub(crate) const PROBE_REGISTERS: usize = 21;
