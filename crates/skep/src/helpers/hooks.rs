//! What the place where a program is attached tells it: the result so far, the cookie, the system setting that is being
//! read or written. The host says it in the [`Context`](crate::Context).

use super::errno::{E2BIG, EINVAL};
use crate::packet::{Effects, Sysctl};
use skep_abi::RunEnv;

/// `BPF_F_SYSCTL_BASE_NAME`: the last part of the name only.
const BASE_NAME: u64 = 1;
/// The most bytes of a new value.
const LONGEST: usize = 4095;

#[inline]
pub(super) unsafe fn get_retval(env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is the environment of the run in progress.
    unsafe { Effects::of_run(env) }.map_or(0, |effects| i64::from(effects.told.retval) as u64)
}

#[inline]
pub(super) unsafe fn set_retval(value: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    if let Some(effects) = unsafe { Effects::of_run(env) } {
        effects.told.retval = value as i32;
    }
    0
}

#[inline]
pub(super) unsafe fn get_attach_cookie(_context: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { Effects::of_run(env) }.map_or(0, |effects| effects.told.cookie)
}

#[inline]
pub(super) unsafe fn get_func_ip(_context: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { Effects::of_run(env) }.map_or(0, |effects| effects.told.func_ip)
}

#[inline]
pub(super) unsafe fn sysctl_get_name(_context: u64, to: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags & !BASE_NAME != 0 {
        return EINVAL;
    }
    let name = |sysctl: &Sysctl| {
        let name = &sysctl.name;
        let start = if flags == 0 { 0 } else { name.rfind('/').map_or(0, |slash| slash + 1) };
        Some(name.as_bytes()[start..].to_vec())
    };
    // SAFETY: as above; the verifier proved that `to` is writable for `len` bytes.
    unsafe { give(to, len, env, name) }
}

#[inline]
pub(super) unsafe fn sysctl_get_current_value(_context: u64, to: u64, len: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { give(to, len, env, |sysctl| sysctl.current.clone()) }
}

#[inline]
pub(super) unsafe fn sysctl_get_new_value(_context: u64, to: u64, len: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { give(to, len, env, |sysctl| sysctl.new.clone()) }
}

#[inline]
pub(super) unsafe fn sysctl_set_new_value(_context: u64, from: u64, len: u64, env: *mut RunEnv) -> u64 {
    let len = len as u32 as usize;
    // SAFETY: as above.
    let effects = unsafe { Effects::of_run(env) };
    let Some(new) = effects.and_then(|effects| effects.told.sysctl.as_mut()?.new.as_mut()) else {
        return EINVAL;
    };
    match len {
        0 => EINVAL,
        len if len > LONGEST => E2BIG,
        len => {
            // SAFETY: the verifier proved that `from` is readable for `len` bytes. Other threads may write to them,
            // so they are read one by one.
            *new = (0..len).map(|at| unsafe { (from as *const u8).add(at).read_volatile() }).collect();
            0
        }
    }
}

/// Copies a text with a zero behind it. Returns its length, or `-E2BIG` where it is cut.
///
/// # Safety
///
/// `to` is writable for `len` bytes; `env` is the environment of the run in progress.
unsafe fn give(to: u64, len: u64, env: *mut RunEnv, what: impl FnOnce(&Sysctl) -> Option<Vec<u8>>) -> u64 {
    let (to, len) = (to as *mut u8, len as u32 as usize);
    // SAFETY: the caller's promise.
    unsafe {
        to.write_bytes(0, len);
        let Some(text) = Effects::of_run(env).and_then(|effects| what(effects.told.sysctl.as_ref()?)) else {
            return EINVAL;
        };
        let cut = text.len().min(len.saturating_sub(1));
        to.copy_from_nonoverlapping(text.as_ptr(), cut);
        if cut < text.len() { E2BIG } else { cut as u64 }
    }
}
