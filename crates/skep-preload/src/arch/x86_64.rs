//! x86-64. Numbers are those of `asm/unistd_64.h`.

use core::arch::asm;

pub(crate) const FSTAT: i64 = 5;
pub(crate) const CLOSE: i64 = 3;
pub(crate) const LSEEK: i64 = 8;
pub(crate) const MMAP: i64 = 9;
pub(crate) const MUNMAP: i64 = 11;
pub(crate) const MADVISE: i64 = 28;
pub(crate) const PRCTL: i64 = 157;
pub(crate) const BPF: i64 = 321;
#[cfg(not(test))]
const SECCOMP: i64 = 317;

/// Calls the kernel. The result is negative for an error, and `errno` stays as it is.
///
/// # Safety
///
/// That of the call.
#[inline(always)]
pub(crate) unsafe fn call(number: i64, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: by the caller's contract; the kernel changes these registers and the two named below.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
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
        "endbr64",
        "cmp rdi, {bpf}",
        "je {ours}",
        "cmp rdi, {seccomp}",
        "je {ours}",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {failed}",
        bpf = const BPF,
        seccomp = const SECCOMP,
        ours = sym crate::front::ours,
        failed = sym crate::front::failed,
    )
}
