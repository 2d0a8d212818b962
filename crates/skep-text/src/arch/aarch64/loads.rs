//! aarch64: functions of one load each (Arm ARM, LDRB, LDRH and LDR with an immediate offset; AAPCS64).

use super::{LANDING_PAD, TRAP};

/// Distance in bytes from one function to the next.
pub(crate) const FUNCTION: usize = 16;

/// Offset of the load in each function: behind the landing pad.
pub(crate) const LOAD: usize = 4;

/// Length of the load in each function.
pub(crate) const LOAD_BYTES: [usize; 4] = [4; 4];

/// The machine's number of the result register: `x0`.
pub(crate) const RESULT: u8 = 0;

const RET: [u8; 4] = 0xd65f_03c0u32.to_le_bytes();

/// Functions that load 1, 2, 4 and 8 bytes from their argument, an address; each is padded with traps.
pub(crate) const CODE: [u8; 4 * FUNCTION] = {
    let loads: [[u8; 4]; 4] = [
        0x3940_0000u32.to_le_bytes(), // ldrb w0, [x0]
        0x7940_0000u32.to_le_bytes(), // ldrh w0, [x0]
        0xb940_0000u32.to_le_bytes(), // ldr w0, [x0]
        0xf940_0000u32.to_le_bytes(), // ldr x0, [x0]
    ];
    let mut code = [0; 4 * FUNCTION];
    let mut at = 0;
    while at < code.len() {
        let word = match at % FUNCTION / 4 {
            0 => LANDING_PAD,
            1 => loads[at / FUNCTION],
            2 => RET,
            _ => TRAP,
        };
        code[at] = word[at % 4];
        at += 1;
    }
    code
};
