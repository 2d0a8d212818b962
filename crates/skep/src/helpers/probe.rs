//! Reading by address: what the world's memory holds ([`skep_world::Memory`]), and the bytes of the run's own context.
//!
//! No address of the host's process is ever read: an address is a number that is looked up.

use super::errno::{EFAULT, ERANGE};
use crate::packet::Effects;
use crate::shared::Shared;
use skep_abi::RunEnv;

/// Which addresses a helper reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Kernel,
    Any,
}

impl Space {
    /// Kernels have the upper half of the address space.
    const fn has(self, address: u64) -> bool {
        match self {
            Self::User => address >> 63 == 0,
            Self::Kernel => address >> 63 == 1,
            Self::Any => true,
        }
    }

    /// The error for an address that cannot be read. What the processor cannot take for one of the kernel's is out of
    /// range: such an address continues its highest bit down to bit 56, and so does one of a process.
    const fn error(self, address: u64) -> u64 {
        match self {
            Self::Kernel if address >> 56 != 0xff => ERANGE,
            Self::Any if !matches!(address >> 56, 0 | 0xff) => ERANGE,
            _ => EFAULT,
        }
    }
}

#[inline]
pub(super) unsafe fn read(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `to` is writable for `len` bytes.
    unsafe { bytes(Space::Any, to, len, from, env) }
}

#[inline]
pub(super) unsafe fn read_user(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { bytes(Space::User, to, len, from, env) }
}

#[inline]
pub(super) unsafe fn read_kernel(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { bytes(Space::Kernel, to, len, from, env) }
}

#[inline]
pub(super) unsafe fn read_str(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { text(Space::Any, to, len, from, env) }
}

#[inline]
pub(super) unsafe fn read_user_str(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { text(Space::User, to, len, from, env) }
}

#[inline]
pub(super) unsafe fn read_kernel_str(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { text(Space::Kernel, to, len, from, env) }
}

/// Copies `len` bytes. Where not all can be read, fills the memory with zeroes.
///
/// # Safety
///
/// `to` is writable for `len` bytes; `env` is the environment of the run in progress.
unsafe fn bytes(space: Space, to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    let (to, len) = (to as *mut u8, len as u32 as usize);
    let mut copied = 0;
    let take = |part: &[u8]| {
        let more = part.len().min(len - copied);
        // SAFETY: `more` bytes are left of `len`; the part is not the program's memory.
        unsafe { to.add(copied).copy_from_nonoverlapping(part.as_ptr(), more) };
        copied += more;
        copied < len
    };
    // SAFETY: the caller's promise.
    unsafe {
        if (len == 0 && space.error(from) == EFAULT) || walk(space, from, env, take) {
            return 0;
        }
        to.write_bytes(0, len);
    }
    space.error(from)
}

/// Copies a string with the zero at its end, cut to `len` bytes. Returns how many bytes it is then.
///
/// # Safety
///
/// As for [`bytes`].
unsafe fn text(space: Space, to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    let (to, len) = (to as *mut u8, len as u32 as usize);
    let mut copied = 0;
    let take = |part: &[u8]| {
        let end = part.iter().position(|byte| *byte == 0);
        let more = end.map_or(part.len(), |end| end + 1).min(len - copied);
        // SAFETY: as in `bytes`.
        unsafe { to.add(copied).copy_from_nonoverlapping(part.as_ptr(), more) };
        copied += more;
        copied < len && end.is_none()
    };
    if len == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; at least one byte was copied.
    unsafe {
        if walk(space, from, env, take) {
            to.add(copied - 1).write(0);
            return copied as u64;
        }
        to.write_bytes(0, len);
    }
    space.error(from)
}

/// Passes on what can be read from an address on. Returns whether `take` had enough.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
unsafe fn walk(space: Space, from: u64, env: *mut RunEnv, mut take: impl FnMut(&[u8]) -> bool) -> bool {
    // SAFETY: the caller's promise; a context that may be read lives as long as its run, and no other thread has it.
    unsafe {
        let own = Effects::of_run(env).map_or(&[][..], |effects| effects.readable());
        if space != Space::User
            && let Some(offset) = from.checked_sub(own.as_ptr().addr() as u64)
            && let Some(rest) = own.get(offset as usize..)
            && !rest.is_empty()
        {
            return !take(rest);
        }
        let shared = Shared::of_run(env);
        space.has(from) && shared.surroundings.with(|machine| machine.memory.walk(from, take))
    }
}
