//! x86-64.

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_003e;
