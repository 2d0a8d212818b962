//! aarch64: the context that the kernel saves of a thread that faulted, and resuming elsewhere.
//!
//! The hardware: a data abort leaves ELR at the instruction; a general register that a single load would have
//! written keeps its value or is unknown, and the probe zeroes it anyway (Arm ARM, "Synchronous exception types"). A
//! fetch that faults reports the address of the fetch as fault address (FAR_EL1), which Linux passes on as
//! `si_addr`; no load of data that is in readable code can fault on its own address.
//!
//! So a fault is about data if its address is not the program counter. PSTATE.BTYPE is cleared: it belongs to the
//! branch before the instruction, and every other instruction sets it to 0.

use std::ffi::c_void;

use libc::{c_ulonglong, siginfo_t, ucontext_t};

/// General registers: x0 to x30. Number 31 is the zero register in a load's destination.
const REGISTERS: u8 = 31;

const BRANCH_TYPE: c_ulonglong = 0b11 << 10;

/// Whether a probe may zero this register: x0 to x30.
pub(crate) fn can_be_zeroed(register: u8) -> bool {
    register < REGISTERS
}

/// The address of the instruction that faulted, if it faulted on its data.
///
/// # Safety
///
/// Both arguments are those that the kernel passed to a handler of SIGSEGV or SIGBUS.
pub(crate) unsafe fn data_fault(info: *const siginfo_t, context: *const c_void) -> Option<usize> {
    // SAFETY: guaranteed by the caller.
    let (machine, address) = unsafe { (&(*context.cast::<ucontext_t>()).uc_mcontext, (*info).si_addr()) };
    let counter = machine.pc as usize;
    (address.addr() != counter).then_some(counter)
}

/// Makes the thread resume at `address`, with `zero` zeroed, when the handler returns.
///
/// # Safety
///
/// The context is the one that the kernel passed to the handler, and no other reference to it exists; `address` is
/// code that may be reached this way.
pub(crate) unsafe fn go_on(context: *mut c_void, address: usize, zero: Option<u8>) {
    // SAFETY: guaranteed by the caller.
    let machine = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext };
    machine.pc = address as c_ulonglong;
    machine.pstate &= !BRANCH_TYPE;
    if let Some(register) = zero.and_then(|number| machine.regs.get_mut(usize::from(number))) {
        *register = 0;
    }
}
