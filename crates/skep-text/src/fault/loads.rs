//! Loads that may fault, for code that is not compiled: an interpreter's.
//!
//! An interpreter is ordinary code of the host, whose instructions no table lists. So it calls a small text whose only
//! accesses are probes, one function for each size:
//!
//! ```text
//!   text   | load 1 byte; return | load 2; return | load 4; return | load 8; return |
//!            ^ probe               ^ probe          ^ probe          ^ probe
//! ```
//!
//! The load is then what compiled code does: one instruction, done whatever the address is, so nothing can change
//! between a check and the access, and no system call is needed that a sandbox might forbid. What would break it: a
//! thread that has SIGSEGV or SIGBUS blocked.

use super::Probe;
use crate::Arena;
use crate::arch::loads::{CODE, FUNCTION, LOAD, LOAD_BYTES, RESULT};
use crate::error::Error;
use crate::text::Text;

/// Loads that give 0 where they fault, as functions of the host. Made by [`Arena::loads`].
///
/// Any number of threads may use it at once.
#[derive(Debug)]
pub struct Loads {
    text: Text,
}

impl Arena {
    /// Makes the functions of [`Loads`], a text of less than 100 bytes.
    ///
    /// # Errors
    ///
    /// As [`draft`](Self::draft), [`Draft::probe`](crate::Draft::probe) and
    /// [`Draft::finalize`](crate::Draft::finalize): [`Error::ProbesForbidden`] where the host forbids the handler.
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
    /// The number of so many bytes at an address, in the machine's order and extended with zeroes; 0 where they
    /// cannot be read, as of a [`Probe`](crate::Probe). `bytes` is 1, 2, 4 or 8; other lengths count as the next
    /// lower of these.
    ///
    /// The address may be any and have any alignment. An aligned number is read at once.
    ///
    /// # Safety
    ///
    /// The calling thread blocks neither SIGSEGV nor SIGBUS: the kernel ends the process at a fault then. What is
    /// read has no side effects, as registers of a device would have. What others write there meanwhile may be seen
    /// in part.
    pub unsafe fn load(&self, address: u64, bytes: u32) -> u64 {
        let function = bytes.max(1).ilog2().min(3) as usize;
        let entry = self.text.address() + function * FUNCTION;
        // SAFETY: a function of this type begins there, and lives as long as `self`. It reads nothing but the bytes
        // at the address, by an instruction outside of what the compiler sees; the caller vouches for the rest.
        unsafe {
            let load = std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> u64>(entry);
            load(address)
        }
    }
}
