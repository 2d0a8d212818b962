//! aarch64. Numbers are those of `asm-generic/unistd.h`.

use core::arch::asm;

pub(crate) const CLOSE: i64 = 57;
pub(crate) const LSEEK: i64 = 62;
pub(crate) const FSTAT: i64 = 80;
pub(crate) const PRCTL: i64 = 167;
pub(crate) const MUNMAP: i64 = 215;
pub(crate) const MMAP: i64 = 222;
pub(crate) const MADVISE: i64 = 233;
pub(crate) const BPF: i64 = 280;
#[cfg(not(test))]
const SECCOMP: i64 = 277;

/// Calls the kernel. The result is negative for an error, and `errno` stays as it is.
///
/// # Safety
///
/// That of the call.
#[inline(always)]
pub(crate) unsafe fn call(number: i64, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: by the caller's contract; the kernel changes the register of the result alone.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    result
}

/// `long syscall(long number, ...)`, in place of libc's.
///
/// For most calls it does what libc's does, instruction by instruction, without a frame: calls that return twice, or on
/// another stack, work as they do there. Arguments of a variadic function are passed as those of any other.
///
/// # Safety
///
/// As for libc's function.
#[cfg(not(test))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    core::arch::naked_asm!(
        "cmp x0, #{bpf}",
        "b.eq 3f",
        "cmp x0, #{seccomp}",
        "b.eq 3f",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc 0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2:",
        "b {failed}",
        "3:",
        "b {ours}",
        bpf = const BPF,
        seccomp = const SECCOMP,
        ours = sym crate::front::ours,
        failed = sym crate::front::failed,
    )
}
