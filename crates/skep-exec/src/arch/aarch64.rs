//! aarch64.

/// `AUDIT_ARCH_AARCH64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_00b7;

/// Other conventions whose calls this kernel may take: the number that seccomp gives each, and its bpf(2).
pub(crate) const FOREIGN: [(u32, u32); 1] = [(0x4000_0028, 386)];

/// There is no second convention of the same number.
pub(crate) const SECOND: Option<u32> = None;
