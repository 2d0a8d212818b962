//! x86-64.

use std::ffi::c_void;

use super::{Code, Load, TRAPPED, one_load};

/// The trap instruction of free memory: int3.
pub(crate) const TRAP: &[u8] = &[0xcc];

/// The shortest no-operation.
pub(crate) const NOP: &[u8] = &[0x90];

/// The last instruction of what [`returns`] makes.
pub(crate) const RETURN: &[u8] = &[0xc3];

/// The landing pad at the start of code that may be called indirectly: endbr64.
pub(crate) const LANDING_PAD: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// Whether some machines check landing pads.
pub(crate) const LANDING_PADS_ARE_CHECKED: bool = false;

/// Whether instruction caches notice every store by themselves, on all machines.
pub(crate) const CACHES_ARE_COHERENT: bool = true;

/// EM_X86_64.
pub(crate) const ELF_MACHINE: u32 = 62;

/// The largest range that surely finds room near the host's code.
pub(crate) const NEAR_RANGE: usize = 1 << 30;

/// The maximum distance of a range from the host's code, if there is room.
pub(crate) const NEAR_WINDOW: usize = 3 << 29;

/// The least range that is made smaller to be near.
pub(crate) const LEAST_NEAR: usize = 128 << 20;

/// Whether several ranges of 64 MiB surely find room near the same function.
pub(crate) const SEVERAL_ARE_NEAR: bool = true;

/// A function that returns `value`.
pub(crate) fn returns(value: u32) -> Vec<u8> {
    [&[0xb8][..], &value.to_le_bytes(), RETURN].concat() // mov eax, value; ret
}

/// For a handler of SIGTRAP: makes a function whose first instruction trapped return [`TRAPPED`].
///
/// # Safety
///
/// `context` is the handler's third argument, and the trap was reached by a call.
pub(crate) unsafe fn return_from_trap(context: *mut c_void) {
    // SAFETY: the caller's promise: the return address is on top of the stack.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let stack = registers[libc::REG_RSP as usize];
        registers[libc::REG_RIP as usize] = *std::ptr::with_exposed_provenance::<i64>(stack as usize);
        registers[libc::REG_RSP as usize] = stack + 8;
        registers[libc::REG_RAX as usize] = TRAPPED.into();
    }
}

/// A jump at `from`: jmp rel32, counted from the end of the instruction.
pub(crate) fn jump(from: usize, to: usize) -> Vec<u8> {
    let distance = to as i64 - from as i64 - 5;
    [&[0xe9][..], &i32::try_from(distance).unwrap().to_le_bytes()].concat()
}

/// A function that counts its argument down to 0: dec rdi; jnz -5; ret.
pub(crate) fn counts_down() -> Vec<u8> {
    vec![0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3]
}

/// A function of `len` bytes that returns `value` if its end matches its beginning, and traps otherwise: this detects
/// a thread whose code is replaced on the way.
pub(crate) fn guarded(value: u32, len: usize) -> Vec<u8> {
    let head = [&[0xb8][..], &value.to_le_bytes()].concat(); // mov eax, value
    // cmp eax, value; je over; ud2; over: ret
    let tail = [&[0x3d][..], &value.to_le_bytes(), &[0x74, 0x02, 0x0f, 0x0b, 0xc3]].concat();
    let filling = len.saturating_sub(head.len() + tail.len());
    let long = [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0].repeat(filling / 8); // nop
    [head, long, NOP.repeat(filling % 8), tail].concat()
}

/// The number of a register that no probe may zero.
pub(crate) const STACK_POINTER: u8 = 4;

/// `fn(pointer) -> *pointer`, as a probe: mov rax, [rdi]; ret.
pub(crate) fn reads() -> Code {
    one_load(vec![0x48, 0x8b, 0x07, 0xc3], 0, 3, 0)
}

/// `fn(first, second) -> *first + *second`, where only the first load is a probe: mov rax, [rdi]; add rax, [rsi];
/// ret.
pub(crate) fn reads_two() -> Code {
    one_load(vec![0x48, 0x8b, 0x07, 0x48, 0x03, 0x06, 0xc3], 0, 3, 0)
}

/// As [`reads`], through the frame pointer. An address that is not canonical is then a stack fault, which Linux reports
/// as SIGBUS.
pub(crate) fn reads_by_frame_pointer() -> Code {
    // push rbp; mov rbp, rdi; mov rax, [rbp+0]; pop rbp; ret
    one_load(vec![0x55, 0x48, 0x89, 0xfd, 0x48, 0x8b, 0x45, 0x00, 0x5d, 0xc3], 4, 4, 0)
}

/// As [`reads`], with alignment checked, which a flag turns on.
pub(crate) fn reads_aligned() -> Code {
    // pushfq; or dword [rsp], 0x40000; popfq; mov rax, [rdi]; pushfq; and dword [rsp], ~0x40000; popfq; ret
    let set = [0x9c, 0x81, 0x0c, 0x24, 0x00, 0x00, 0x04, 0x00, 0x9d];
    let clear = [0x9c, 0x81, 0x24, 0x24, 0xff, 0xff, 0xfb, 0xff, 0x9d, 0xc3];
    one_load([&set[..], &[0x48, 0x8b, 0x07], &clear].concat(), 9, 3, 0)
}

/// The registers that [`dumps_registers`] sets: not rsp, and not rsi and rdi, which hold addresses.
pub(crate) const DUMPED: &[u8] = &[0, 1, 2, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The flags that [`dumps_registers`] sets and stores.
pub(crate) const FLAGS: u64 = 0x8d5;

/// Sets [`FLAGS`] and gives every register of [`DUMPED`] its number plus 100, probes into `target` through the first
/// argument, and stores them all at the second: a register at 8 times its number, the flags at 128.
pub(crate) fn dumps_registers(target: u8) -> Code {
    let mut code = vec![0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]; // push rbx, rbp, r12 to r15
    for &number in DUMPED {
        code.extend([0x48 | number >> 3, 0xc7, 0xc0 | number & 7, number + 100, 0, 0, 0]); // mov number, value
    }
    code.extend([0x68, 0xd7, 0x08, 0x00, 0x00, 0x9d]); // push flags; popfq
    let at = code.len();
    code.extend([0x48 | target >> 3 << 2, 0x8b, 0x07 | (target & 7) << 3]); // mov target, [rdi]
    for &number in DUMPED {
        // mov [rsi + 8 * number], number
        code.extend([0x48 | number >> 3 << 2, 0x89, 0x86 | (number & 7) << 3, number * 8, 0, 0, 0]);
    }
    code.extend([0x9c, 0x8f, 0x86, 128, 0, 0, 0]); // pushfq; pop [rsi + 128]
    code.extend([0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3]);
    one_load(code, at, 3, target)
}

/// `fn(pointer) -> 1`, or 2 if the pointer cannot be read: a probe without a register that resumes elsewhere.
pub(crate) fn tells_whether_it_can_read() -> Code {
    // mov eax, 1; cmp [rdi], eax; ret; mov eax, 2; ret
    let bytes = vec![0xb8, 1, 0, 0, 0, 0x39, 0x07, 0xc3, 0xb8, 2, 0, 0, 0, 0xc3];
    Code { bytes, probes: vec![Load { at: 5, resume: 8, register: None }] }
}

/// `fn(pointer) -> *pointer`, repeated until that is not 0; a probe.
pub(crate) fn reads_until_it_is_not_zero() -> Code {
    // mov rax, [rdi]; test rax, rax; je back; ret
    one_load(vec![0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0x74, 0xf8, 0xc3], 0, 3, 0)
}

/// As [`reads`], while the stack pointer is 0.
pub(crate) fn reads_without_a_stack() -> Code {
    // mov r8, rsp; xor esp, esp; mov rax, [rdi]; mov rsp, r8; ret
    one_load(vec![0x49, 0x89, 0xe0, 0x31, 0xe4, 0x48, 0x8b, 0x07, 0x4c, 0x89, 0xc4, 0xc3], 5, 3, 0)
}
