//! aarch64: what the kernel saves of a thread that faulted, and going on elsewhere.
//!
//! What the hardware does: a data abort leaves ELR at the instruction; a general register that a single load would
//! have written keeps its value or is unknown, and the probe zeroes it anyway (Arm ARM, "Synchronous exception types").
//! A fetch that faults reports the address of the fetch itself as fault address (FAR_EL1), which Linux passes on as
//! `si_addr`; no load of data that lies in readable code can fault on its own address.
//!
//! What we do: a fault is about data when its address is not the program counter. PSTATE.BTYPE is cleared: it belongs
//! to the branch before the instruction, and every other instruction sets it to 0.

use std::ffi::c_void;

use libc::{c_ulonglong, siginfo_t, ucontext_t};

/// General registers: x0 to x30. Number 31 is the zero register in a load's destination.
const REGISTERS: u8 = 31;

const BRANCH_TYPE: c_ulonglong = 0b11 << 10;

/// Whether a probe may zero this register: x0 to x30.
pub(crate) fn can_be_zeroed(register: u8) -> bool {
    register < REGISTERS
}

/// The address of the instruction that faulted, when it was its data that it faulted on.
///
/// # Safety
///
/// Both are what the kernel handed a handler of SIGSEGV or SIGBUS.
pub(crate) unsafe fn data_fault(info: *const siginfo_t, context: *const c_void) -> Option<usize> {
    // SAFETY: the caller's.
    let (machine, address) = unsafe { (&(*context.cast::<ucontext_t>()).uc_mcontext, (*info).si_addr()) };
    let counter = machine.pc as usize;
    (address.addr() != counter).then_some(counter)
}

/// Makes the thread go on at `address`, with `zero` zeroed, when the handler returns.
///
/// # Safety
///
/// The context is what the kernel handed the handler, and nothing else refers to it; `address` is code that expects
/// to be reached so.
pub(crate) unsafe fn go_on(context: *mut c_void, address: usize, zero: Option<u8>) {
    // SAFETY: the caller's.
    let machine = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext };
    machine.pc = address as c_ulonglong;
    machine.pstate &= !BRANCH_TYPE;
    if let Some(register) = zero.and_then(|number| machine.regs.get_mut(usize::from(number))) {
        *register = 0;
    }
}
