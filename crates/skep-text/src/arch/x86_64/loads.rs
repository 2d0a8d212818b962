//! x86-64: functions of one load each (Intel SDM volume 2, MOV and MOVZX; System V calling convention).

/// Distance in bytes from one function to the next.
pub(crate) const FUNCTION: usize = 8;

/// Offset of the load in each function.
pub(crate) const LOAD: usize = 0;

/// Length of the load in each function.
pub(crate) const LOAD_BYTES: [usize; 4] = [3, 3, 2, 3];

/// The machine's number of the result register: `rax`.
pub(crate) const RESULT: u8 = 0;

/// Functions that load 1, 2, 4 and 8 bytes from their argument, an address; each is padded with traps.
#[rustfmt::skip]
pub(crate) const CODE: [u8; 4 * FUNCTION] = [
    0x0f, 0xb6, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // movzx eax, byte ptr [rdi]; ret
    0x0f, 0xb7, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // movzx eax, word ptr [rdi]; ret
    0x8b, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // mov eax, [rdi]; ret
    0x48, 0x8b, 0x07, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // mov rax, [rdi]; ret
];
