//! Functions for tests, in assembly: helpers that clobber or require all that the calling convention allows, and a
//! caller that checks whether every callee-saved register was preserved.

use skep_abi::RunEnv;

std::arch::global_asm!(
    // Fills every register that a callee may destroy, and what lies below the stack, with junk; returns 42.
    ".globl skep_jit_test_clobber",
    "skep_jit_test_clobber:",
    "mov x1, #-3",
    "mov x2, x1",
    "mov x3, x1",
    "mov x4, x1",
    "mov x5, x1",
    "mov x6, x1",
    "mov x7, x1",
    "mov x8, x1",
    "mov x9, x1",
    "mov x10, x1",
    "mov x11, x1",
    "mov x12, x1",
    "mov x13, x1",
    "mov x14, x1",
    "mov x15, x1",
    "mov x16, x1",
    "mov x17, x1",
    "stp x1, x1, [sp, #-16]",
    "stp x1, x1, [sp, #-128]",
    "cmp xzr, xzr",
    "mov x0, #42",
    "ret",
    // Traps unless sp is a multiple of 16 and x29 points to a frame record; returns its first argument.
    ".globl skep_jit_test_aligned",
    "skep_jit_test_aligned:",
    "mov x9, sp",
    "tst x9, #15",
    "b.ne 1f",
    "ldr x9, [x29, #8]",
    "cbz x9, 1f",
    "ret",
    "1: brk #1",
    // Takes the signature off the return address that its caller saved; returns its first argument.
    ".globl skep_jit_test_unsign",
    "skep_jit_test_unsign:",
    "mov x10, x30",
    "ldr x30, [x29, #8]",
    "hint #7", // xpaclri
    "str x30, [x29, #8]",
    "mov x30, x10",
    "ret",
    // x0: function, x1, x2, x3: its arguments, x4: where to put its result. Returns how many of the registers that
    // it must preserve it did not.
    ".globl skep_jit_test_call",
    "skep_jit_test_call:",
    "stp x29, x30, [sp, #-112]!",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "str x4, [sp, #96]",
    "mov x9, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x19, #0x1111",
    "movk x19, #0x2222, lsl #32",
    "add x20, x19, #1",
    "add x21, x19, #2",
    "add x22, x19, #3",
    "add x23, x19, #4",
    "add x24, x19, #5",
    "add x25, x19, #6",
    "add x26, x19, #7",
    "add x27, x19, #8",
    "add x28, x19, #9",
    "blr x9",
    "ldr x4, [sp, #96]",
    "str x0, [x4]",
    "mov x1, #0x1111",
    "movk x1, #0x2222, lsl #32",
    "mov x0, xzr",
    "cmp x19, x1",
    "cinc x0, x0, ne",
    "add x2, x1, #1",
    "cmp x20, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #2",
    "cmp x21, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #3",
    "cmp x22, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #4",
    "cmp x23, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #5",
    "cmp x24, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #6",
    "cmp x25, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #7",
    "cmp x26, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #8",
    "cmp x27, x2",
    "cinc x0, x0, ne",
    "add x2, x1, #9",
    "cmp x28, x2",
    "cinc x0, x0, ne",
    "mov x2, sp",
    "cmp x29, x2",
    "cinc x0, x0, ne",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp x29, x30, [sp], #112",
    "ret",
);

unsafe extern "C" {
    fn skep_jit_test_clobber(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64;
    fn skep_jit_test_aligned(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64;
    fn skep_jit_test_unsign(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64;
    fn skep_jit_test_call(function: usize, r1: u64, r2: u64, env: *mut RunEnv, result: *mut u64) -> u64;
}

/// An instruction that traps.
pub(crate) const TRAP: &[u8] = &[0x00, 0x00, 0x20, 0xd4];

/// The features of every processor.
pub(crate) const OLDEST: super::aarch64::Features = super::aarch64::Features { lse: false };

/// Traps where the stack is not aligned or there is no frame record; returns its first argument.
pub(crate) const ALIGNED: skep_abi::HelperFn = skep_jit_test_aligned;

/// Takes the signature off the return address that its caller saved; returns its first argument.
pub(crate) const UNSIGN: skep_abi::HelperFn = skep_jit_test_unsign;

/// Clobbers all that a helper may clobber; returns 42.
pub(crate) const CLOBBER: skep_abi::HelperFn = skep_jit_test_clobber;

/// Calls compiled code; its result, and how many registers it should have preserved and did not.
///
/// # Safety
///
/// As for [`crate::Entry::call`].
pub(crate) unsafe fn call(entry: crate::Entry, r1: u64, r2: u64, env: *mut RunEnv) -> (u64, u64) {
    let mut result = 0;
    // SAFETY: the entry is a function of three arguments, whose preconditions the caller fulfils.
    let lost = unsafe { skep_jit_test_call(entry.address(), r1, r2, env, &mut result) };
    (result, lost)
}

/// The code with every conditional jump turned round.
pub(crate) fn mistaken(code: &[u8]) -> Vec<u8> {
    let turned = |word: u32| match word {
        // B.cond; CBZ and CBNZ; TBZ and TBNZ (Arm ARM C4.1.65).
        _ if word & 0xff00_0010 == 0x5400_0000 => word ^ 1,
        _ if word & 0x7c00_0000 == 0x3400_0000 => word ^ 1 << 24,
        _ => word,
    };
    code.chunks(4)
        .filter_map(|word| Some(turned(u32::from_le_bytes(word.try_into().ok()?))))
        .flat_map(u32::to_le_bytes)
        .collect()
}
