//! x86-64.

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_003e;

/// Other conventions whose calls this kernel may take: the number that seccomp gives each, and its bpf(2).
pub(crate) const FOREIGN: [(u32, u32); 1] = [(0x4000_0003, 357)];

/// bpf(2) of x32, which has the same number as a convention and a bit in those of its calls.
pub(crate) const SECOND: Option<u32> = Some(0x4000_0000 | 321);
