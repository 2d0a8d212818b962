//! Loads that may fault, for interpreters.
//!
//! An interpreter is ordinary code of the host, whose instructions are in no exception table. So it calls a small
//! text whose only accesses are probes, one function for each size:
//!
//! ```text
//!   text   | load 1 byte; return | load 2; return | load 4; return | load 8; return |
//!            ^ probe               ^ probe          ^ probe          ^ probe
//! ```
//!
//! The load is then the same as in compiled code: one instruction, executed for any address, so that nothing can
//! change between a check and the access, and no system call is needed that a sandbox might forbid. What would break
//! it: a thread that blocks SIGSEGV or SIGBUS.

use crate::arch::loads::{CODE, FUNCTION, LOAD, LOAD_BYTES, RESULT};
use crate::arena::Arena;
use crate::error::Error;
use crate::fault::Probe;
use crate::text::Text;

/// Loads as functions, which return 0 if they fault. Made by [`Arena::loads`].
///
/// Any number of threads may use it at once.
#[derive(Debug)]
pub struct Loads {
    text: Text,
}

impl Arena {
    /// Makes the functions of [`Loads`]: a text of less than 100 bytes.
    ///
    /// # Errors
    ///
    /// As [`draft`](Self::draft), [`Draft::probe`](crate::Draft::probe) and
    /// [`Draft::finalize`](crate::Draft::finalize): [`Error::ProbesForbidden`] if the host forbids the handler.
    pub fn loads(&self) -> Result<Loads, Error> {
        let mut draft = self.draft(CODE.len())?;
        draft.set_name("skep_text_loads");
        draft.bytes_mut().copy_from_slice(&CODE);
        for (start, len) in (0..CODE.len()).step_by(FUNCTION).zip(LOAD_BYTES) {
            let at = start + LOAD;
            draft.probe(Probe { at, resume: at + len, register: Some(RESULT) })?;
        }
        Ok(Loads { text: draft.finalize()? })
    }
}

impl Loads {
    /// Reads a number of `bytes` bytes at an address, in the machine's byte order and zero-extended; 0 if it cannot
    /// be read, as for a [`Probe`]. `bytes` is 1, 2, 4 or 8; any other value is rounded down to one of
    /// these.
    ///
    /// Any address of any alignment is allowed. An aligned number is read by a single access.
    ///
    /// # Safety
    ///
    /// The calling thread blocks neither SIGSEGV nor SIGBUS: otherwise the kernel ends the process at a fault.
    /// Reading the address has no side effects, such as those of device registers. Concurrent writes may be seen in
    /// part.
    pub unsafe fn load(&self, address: u64, bytes: u32) -> u64 {
        let function = bytes.max(1).ilog2().min(3) as usize;
        let entry = self.text.address() + function * FUNCTION;
        // SAFETY: a function of this type begins there, and lives as long as `self`. It reads only the bytes at the
        // address, by an instruction that the compiler does not see; the caller guarantees the rest.
        unsafe {
            let load = std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> u64>(entry);
            load(address)
        }
    }
}
