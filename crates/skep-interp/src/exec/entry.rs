//! Beginnings of functions: what may happen instead of one, and the callback that an exception ends in.

use super::{Machine, Registers, Watch, execute, open_frame};
use crate::code::{Code, MAX_FRAMES};

/// Asks what is to happen instead of the function that starts at `slot`. If that runs the function, it is in the frame
/// `depth`.
///
/// # Safety
///
/// As for [`execute`]; the function is about to be called with these arguments.
pub(super) unsafe fn entered<W: Watch>(
    machine: *mut Machine<'_, W>,
    depth: usize,
    slot: usize,
    args: &[u64; 5],
) -> Option<u64> {
    // SAFETY: the caller's promise. The code is shared and outlives the machine.
    let (code, env) = unsafe { ((*machine).code, (*machine).env) };
    let (of, enter) = code.enter?;
    let mut body = || {
        // SAFETY: the caller's promise: it calls the function with these arguments.
        unsafe {
            (*machine).entered += 1;
            let result = execute_function(machine, depth, slot, args);
            (*machine).entered -= 1;
            match result {
                Ok(result) => {
                    (*machine).watch.leave();
                    result
                }
                Err(stop) => {
                    (*machine).stop = Some(stop);
                    0
                }
            }
        }
    };
    // SAFETY: the host gave both for this program, whose run is in progress.
    unsafe { enter(of, code.function_index(slot), args, env, &mut body) }
}

/// Opens the frame `depth` for the function that starts at `slot`, and executes it.
///
/// # Safety
///
/// As for [`execute`].
pub(super) unsafe fn execute_function<W: Watch>(
    machine: *mut Machine<'_, W>,
    depth: usize,
    slot: usize,
    args: &[u64; 5],
) -> Result<u64, W::Stop> {
    let mut regs: Registers = [0; 11];
    regs[1..6].copy_from_slice(args);
    assert!(depth < MAX_FRAMES, "calls nest too deep");
    // SAFETY: the caller's promise; the depth was checked above.
    unsafe {
        regs[10] = open_frame((*machine).frames, depth);
        (*machine).watch.enter(slot, regs[10]);
        execute(machine, depth, slot, regs)
    }
}

/// An exception has left all functions: the callback begins in the first frame. Returns its registers and slot.
///
/// # Safety
///
/// As for [`execute`].
pub(super) unsafe fn catch<W: Watch>(
    machine: *mut Machine<'_, W>,
    callback: usize,
    cookie: u64,
) -> (Registers, usize) {
    let mut regs: Registers = [0; 11];
    regs[1] = cookie;
    // SAFETY: the caller's promise; there always is a first frame.
    unsafe {
        let code: &Code = (*machine).code;
        let slot = code.parts.functions[callback].start as usize;
        regs[10] = open_frame((*machine).frames, 0);
        (*machine).watch.thrown(slot, regs[10]);
        (regs, slot)
    }
}
