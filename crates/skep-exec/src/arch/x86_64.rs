//! x86-64.

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
pub(crate) const AUDIT: u32 = 0xc000_003e;

/// Other conventions whose calls this kernel may take: the number that seccomp gives each, and its bpf(2).
pub(crate) const FOREIGN: [(u32, u32); 1] = [(0x4000_0003, 357)];

/// The system calls that read a link, and those that open a file: which of their arguments is the path, and for the
/// latter which are the flags.
pub(crate) const READLINKS: &[(libc::c_long, usize)] = &[(libc::SYS_readlink, 0), (libc::SYS_readlinkat, 1)];
pub(crate) const OPENS: &[(libc::c_long, usize, usize)] = &[(libc::SYS_open, 0, 1), (libc::SYS_openat, 1, 2)];

/// bpf(2) of x32, which has the same number as a convention and a bit in those of its calls.
pub(crate) const SECOND: Option<u32> = Some(0x4000_0000 | 321);
