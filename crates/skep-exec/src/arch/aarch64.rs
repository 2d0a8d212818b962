//! aarch64.

/// `AUDIT_ARCH_AARCH64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_00b7;

/// Other conventions whose calls this kernel may take: the number that seccomp gives each, and its bpf(2).
pub(crate) const FOREIGN: [(u32, u32); 1] = [(0x4000_0028, 386)];

/// The system calls that read a link, and those that open a file: which of their arguments is the path, and for the
/// latter which are the flags.
pub(crate) const READLINKS: &[(libc::c_long, usize)] = &[(libc::SYS_readlinkat, 1)];
pub(crate) const OPENS: &[(libc::c_long, usize, usize)] = &[(libc::SYS_openat, 1, 2)];

/// There is no second convention of the same number.
pub(crate) const SECOND: Option<u32> = None;
