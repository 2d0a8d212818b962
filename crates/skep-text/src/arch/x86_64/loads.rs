//! x86-64: functions of one load each (Intel SDM volume 2, MOV and MOVZX; System V calling convention).

/// Bytes from one function to the next.
pub(crate) const FUNCTION: usize = 8;

/// Where the load is in each of them.
pub(crate) const LOAD: usize = 0;

/// How long the load is in each of them.
pub(crate) const LOAD_BYTES: [usize; 4] = [3, 3, 2, 3];

/// The register that holds the result, by the machine's number: `rax`.
pub(crate) const RESULT: u8 = 0;

/// Functions that load 1, 2, 4 and 8 bytes from the address that they are given, each up to its end filled with traps.
#[rustfmt::skip]
pub(crate) const CODE: [u8; 4 * FUNCTION] = [
    0x0f, 0xb6, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // movzx eax, byte ptr [rdi]; ret
    0x0f, 0xb7, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // movzx eax, word ptr [rdi]; ret
    0x8b, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // mov eax, [rdi]; ret
    0x48, 0x8b, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // mov rax, [rdi]; ret
];
