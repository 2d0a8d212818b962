//! x86-64: the context that the kernel saves of a thread that faulted, and resuming elsewhere.
//!
//! The hardware: a fault leaves the instruction pointer at the instruction, and no register that it would have
//! written is changed (Intel SDM volume 3, "Program or Task Restart"). A load faults as #PF, as #GP or #SS if the
//! address is not canonical (#SS if it is based on `rbp` or `rsp`), or as #AC if alignment is checked. The trap
//! number and the error code are in the saved context (sigaction(2), `uc_mcontext`; asm/sigcontext.h).
//!
//! So only these four, without instruction fetches (bit 4 of the error code of #PF), are data faults. The resume
//! flag, which a fault sets in the saved flags so that a breakpoint does not hit twice, is cleared, because
//! execution resumes at another instruction.

use std::ffi::c_void;

use libc::{c_int, greg_t, siginfo_t, ucontext_t};

/// Where general registers are in the saved context, by machine number.
const REGISTERS: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

const RSP: u8 = 4;

/// #SS, #GP, #PF and #AC.
const DATA_FAULTS: [greg_t; 4] = [12, 13, PAGE_FAULT, 17];
const PAGE_FAULT: greg_t = 14;
const FETCH: greg_t = 1 << 4;

const RESUME_FLAG: greg_t = 1 << 16;

/// Whether a probe may zero this register: any but the stack pointer.
pub(crate) fn can_be_zeroed(register: u8) -> bool {
    usize::from(register) < REGISTERS.len() && register != RSP
}

/// The address of the instruction that faulted, if it faulted on its data.
///
/// # Safety
///
/// Both arguments are those that the kernel passed to a handler of SIGSEGV or SIGBUS.
pub(crate) unsafe fn data_fault(_info: *const siginfo_t, context: *const c_void) -> Option<usize> {
    // SAFETY: guaranteed by the caller.
    let registers = unsafe { &(*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let trap = registers[libc::REG_TRAPNO as usize];
    let fetch = trap == PAGE_FAULT && registers[libc::REG_ERR as usize] & FETCH != 0;
    (DATA_FAULTS.contains(&trap) && !fetch).then_some(registers[libc::REG_RIP as usize] as usize)
}

/// Makes the thread resume at `address`, with `zero` zeroed, when the handler returns.
///
/// # Safety
///
/// The context is the one that the kernel passed to the handler, and no other reference to it exists; `address` is
/// code that may be reached this way.
pub(crate) unsafe fn go_on(context: *mut c_void, address: usize, zero: Option<u8>) {
    // SAFETY: guaranteed by the caller.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] = address as greg_t;
    registers[libc::REG_EFL as usize] &= !RESUME_FLAG;
    if let Some(&register) = zero.and_then(|number| REGISTERS.get(usize::from(number))) {
        registers[register as usize] = 0;
    }
}
