//! aarch64.

use std::ffi::c_void;

use super::{Code, Load, TRAPPED, one_load};

/// The trap instruction of free memory: brk #0.
pub(crate) const TRAP: &[u8] = &[0x00, 0x00, 0x20, 0xd4];

/// The shortest no-operation.
pub(crate) const NOP: &[u8] = &[0x1f, 0x20, 0x03, 0xd5];

/// The last instruction of what [`returns`] makes.
pub(crate) const RETURN: &[u8] = &RET.to_le_bytes();

/// The landing pad at the start of code that may be called indirectly: bti c.
pub(crate) const LANDING_PAD: &[u8] = &[0x5f, 0x24, 0x03, 0xd5];

/// Whether some machines check landing pads.
pub(crate) const LANDING_PADS_ARE_CHECKED: bool = true;

/// Whether instruction caches notice every store by themselves, on all machines.
pub(crate) const CACHES_ARE_COHERENT: bool = false;

/// EM_AARCH64.
pub(crate) const ELF_MACHINE: u32 = 183;

/// The largest range that surely finds room near the host's code.
pub(crate) const NEAR_RANGE: usize = 64 << 20;

/// The maximum distance of a range from the host's code, if there is room.
pub(crate) const NEAR_WINDOW: usize = 112 << 20;

/// The least range that is made smaller to be near.
pub(crate) const LEAST_NEAR: usize = 128 << 20;

/// Whether several ranges of 64 MiB surely find room near the same function.
pub(crate) const SEVERAL_ARE_NEAR: bool = false;

/// A function that returns `value`.
pub(crate) fn returns(value: u32) -> Vec<u8> {
    words(&[load(0, value)[0], load(0, value)[1], RET])
}

/// For a handler of SIGTRAP: makes a function whose first instruction trapped return [`TRAPPED`].
///
/// # Safety
///
/// `context` is the handler's third argument, and the trap was reached by a call.
pub(crate) unsafe fn return_from_trap(context: *mut c_void) {
    // SAFETY: the caller's promise: the return address is in the link register.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        machine.pc = machine.regs[30];
        machine.regs[0] = TRAPPED.into();
    }
}

/// A jump at `from`: b.
pub(crate) fn jump(from: usize, to: usize) -> Vec<u8> {
    let distance = to as i64 - from as i64;
    assert!((-(1 << 27)..1 << 27).contains(&distance) && distance % 4 == 0);
    words(&[0x1400_0000 | (distance / 4) as u32 & 0x03ff_ffff])
}

/// A function that counts its argument down to 0: subs x0, x0, #1; b.ne -4; ret.
pub(crate) fn counts_down() -> Vec<u8> {
    words(&[0xf100_0400, 0x54ff_ffe1, RET])
}

/// A function of `len` bytes that returns `value` if its end matches its beginning, and traps otherwise: this detects
/// a thread whose code is replaced on the way.
pub(crate) fn guarded(value: u32, len: usize) -> Vec<u8> {
    // cmp w0, w1; b.eq over; brk #1; over: ret
    let tail = [0x6b01_001f, 0x5400_0040, 0xd420_0020, RET];
    let filling = vec![0xd503_201f; (len / 4).saturating_sub(8)];
    words(&[&load(0, value)[..], &filling, &load(1, value), &tail].concat())
}

/// The number of a register that no probe may zero.
pub(crate) const STACK_POINTER: u8 = 31;

/// `fn(pointer) -> *pointer`, as a probe: ldr x0, [x0]; ret.
pub(crate) fn reads() -> Code {
    one_load(words(&[LDR_X0_X0, RET]), 0, 4, 0)
}

/// `fn(first, second) -> *first + *second`, where only the first load is a probe.
pub(crate) fn reads_two() -> Code {
    // ldr x0, [x0]; ldr x1, [x1]; add x0, x0, x1; ret
    one_load(words(&[LDR_X0_X0, 0xf940_0021, 0x8b01_0000, RET]), 0, 4, 0)
}

/// As [`reads`], through the frame pointer.
pub(crate) fn reads_by_frame_pointer() -> Code {
    // mov x9, x29; mov x29, x0; ldr x0, [x29]; mov x29, x9; ret
    one_load(words(&[0xaa1d_03e9, 0xaa00_03fd, 0xf940_03a0, 0xaa09_03fd, RET]), 8, 4, 0)
}

/// As [`reads`], with alignment checked, which a load-acquire does: ldaxr x0, [x0]; ret.
pub(crate) fn reads_aligned() -> Code {
    one_load(words(&[0xc85f_fc00, RET]), 0, 4, 0)
}

/// The registers that [`dumps_registers`] sets: not x0 and x1, which hold addresses, and none from x16 on, some of
/// which are reserved.
pub(crate) const DUMPED: &[u8] = &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The flags that [`dumps_registers`] sets and stores.
pub(crate) const FLAGS: u64 = 0xf000_0000;

/// Sets [`FLAGS`] and gives every register of [`DUMPED`] its number plus 100, probes into `target` through the first
/// argument, and stores them all at the second: a register at 8 times its number, the flags at 128.
pub(crate) fn dumps_registers(target: u8) -> Code {
    let mut code = vec![0xd2be_0002, 0xd51b_4202]; // movz x2, #0xf000, lsl 16; msr nzcv, x2
    for number in DUMPED.iter().map(|&number| u32::from(number)) {
        code.push(0xd280_0000 | (number + 100) << 5 | number); // movz number, value
    }
    let at = 4 * code.len();
    code.push(LDR_X0_X0 | u32::from(target)); // ldr target, [x0]
    for number in DUMPED.iter().map(|&number| u32::from(number)) {
        code.push(0xf900_0020 | number << 10 | number); // str number, [x1, 8 * number]
    }
    code.extend([0xd53b_4202, 0xf900_4022, RET]); // mrs x2, nzcv; str x2, [x1, #128]; ret
    one_load(words(&code), at, 4, target)
}

/// `fn(pointer) -> 1`, or 2 if the pointer cannot be read: a probe without a register that resumes elsewhere.
pub(crate) fn tells_whether_it_can_read() -> Code {
    // movz x2, #1; ldr xzr, [x0]; mov x0, x2; ret; movz x0, #2; ret
    let bytes = words(&[0xd280_0022, 0xf940_001f, 0xaa02_03e0, RET, 0xd280_0040, RET]);
    Code { bytes, probes: vec![Load { at: 4, resume: 16, register: None }] }
}

/// `fn(pointer) -> *pointer`, repeated until that is not 0; a probe.
pub(crate) fn reads_until_it_is_not_zero() -> Code {
    // ldr x1, [x0]; cbz x1, back; mov x0, x1; ret
    one_load(words(&[0xf940_0001, 0xb4ff_ffe1, 0xaa01_03e0, RET]), 0, 4, 1)
}

/// As [`reads`], while the stack pointer is 0.
pub(crate) fn reads_without_a_stack() -> Code {
    // mov x8, sp; mov x9, #0; mov sp, x9; ldr x0, [x0]; mov sp, x8; ret
    one_load(words(&[0x9100_03e8, 0xd280_0009, 0x9100_013f, LDR_X0_X0, 0x9100_011f, RET]), 12, 4, 0)
}

const LDR_X0_X0: u32 = 0xf940_0000;
const RET: u32 = 0xd65f_03c0;

/// movz w, #low; movk w, #high, lsl #16.
fn load(to: u32, value: u32) -> [u32; 2] {
    [0x5280_0000 | (value & 0xffff) << 5 | to, 0x72a0_0000 | (value >> 16) << 5 | to]
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
