//! aarch64.

/// `AUDIT_ARCH_AARCH64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_00b7;
