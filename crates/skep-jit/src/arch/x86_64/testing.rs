//! Functions for tests, in assembly: helpers that clobber or require all that the calling convention allows, and a
//! caller that checks whether every callee-saved register was preserved.

use skep_abi::RunEnv;

std::arch::global_asm!(
    // Fills every register that a callee may destroy, and the red zone, with junk; returns 42.
    ".globl skep_jit_test_clobber",
    "skep_jit_test_clobber:",
    "mov rcx, -3",
    "mov rdx, rcx",
    "mov rsi, rcx",
    "mov rdi, rcx",
    "mov r8, rcx",
    "mov r9, rcx",
    "mov r10, rcx",
    "mov r11, rcx",
    "push rcx",
    "push rcx",
    "mov [rsp - 8], rcx",
    "mov [rsp - 128], rcx",
    "add rsp, 16",
    "mov eax, 42",
    "ret",
    // Traps unless rsp + 8 is a multiple of 16; returns its first argument.
    ".globl skep_jit_test_aligned",
    "skep_jit_test_aligned:",
    "movaps [rsp - 24], xmm0",
    "mov rax, rdi",
    "ret",
    // rdi: function, rsi, rdx, rcx: its arguments, r8: where to put its result. Returns how many of the
    // registers that it must preserve it did not.
    ".globl skep_jit_test_call",
    "skep_jit_test_call:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push r8",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov rbx, 0x1111111122222222",
    "lea rbp, [rbx + 1]",
    "lea r12, [rbx + 2]",
    "lea r13, [rbx + 3]",
    "lea r14, [rbx + 4]",
    "lea r15, [rbx + 5]",
    "call rax",
    "pop r8",
    "mov [r8], rax",
    "xor eax, eax",
    "mov rcx, 0x1111111122222222",
    "cmp rbx, rcx",
    "setne al",
    "lea rdx, [rcx + 1]",
    "cmp rbp, rdx",
    "setne dl",
    "add al, dl",
    "lea rdx, [rcx + 2]",
    "cmp r12, rdx",
    "setne dl",
    "add al, dl",
    "lea rdx, [rcx + 3]",
    "cmp r13, rdx",
    "setne dl",
    "add al, dl",
    "lea rdx, [rcx + 4]",
    "cmp r14, rdx",
    "setne dl",
    "add al, dl",
    "lea rdx, [rcx + 5]",
    "cmp r15, rdx",
    "setne dl",
    "add al, dl",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn skep_jit_test_clobber(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64;
    fn skep_jit_test_aligned(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64;
    fn skep_jit_test_call(function: usize, r1: u64, r2: u64, env: *mut RunEnv, result: *mut u64) -> u64;
}

/// An instruction that traps.
pub(crate) const TRAP: &[u8] = &[0xcc];

/// The features of every processor.
pub(crate) const OLDEST: super::x86_64::Features = super::x86_64::Features { bmi2: false };

/// Faults where the stack is not aligned; returns its first argument.
pub(crate) const ALIGNED: skep_abi::HelperFn = skep_jit_test_aligned;

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
    let mut turned = code.to_vec();
    for insn in &mut iced_x86::Decoder::with_ip(64, code, 0, iced_x86::DecoderOptions::NONE) {
        let at = insn.ip() as usize;
        match (insn.is_jcc_short(), insn.is_jcc_near()) {
            (true, _) => turned[at] ^= 1,
            (_, true) => turned[at + 1] ^= 1,
            _ => {}
        }
    }
    turned
}
