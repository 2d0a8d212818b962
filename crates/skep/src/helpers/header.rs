//! Options of TCP headers, for programs over the operations of a socket.
//!
//! The context's data is a TCP header with its options. Linux calls a program twice for each header: first it says how
//! many bytes it needs, then it writes them. The context has the room for both ([`crate::Context::set_option_room`]),
//! and the bytes are reserved before a run, so the header stays where it is while it grows.

use super::errno::{EFAULT, EINVAL, ENOENT};
use super::socket::own;
use crate::packet::Effects;
use skep_abi::RunEnv;

const EPERM: u64 = -1i64 as u64;
const EEXIST: u64 = -17i64 as u64;
const ENOSPC: u64 = -28i64 as u64;
const ENOMSG: u64 = -42i64 as u64;
/// Operations in which a program says how much it needs, and in which it writes.
const LENGTH: u32 = 14;
const WRITE: u32 = 15;
/// Bytes of a header without options.
const HEADER: usize = 20;
/// Kinds of options: the end, nothing, and two for experiments, which begin with a magic number (RFC 6994).
const END: u8 = 0;
const NOTHING: u8 = 1;
const EXPERIMENTS: [u8; 2] = [253, 254];
/// The longest option, by its length field.
const LONGEST: usize = 255;
/// Where `struct bpf_sock_ops` has the end of the header.
const DATA_END: u64 = 200;
/// `IPPROTO_TCP` and `TCP_BPF_SYN`: the host keeps the header of a connection's SYN as this option.
const SYN: (i32, i32) = (6, 1005);

/// The operation for which the program runs.
///
/// # Safety
///
/// `context` is the run's own `struct bpf_sock_ops`.
unsafe fn operation(context: u64) -> u32 {
    // SAFETY: the caller's promise; it is the first field.
    unsafe { *(context as *const u32) }
}

/// The option of that kind which begins with that magic number, or why there is none; and whether the options have an
/// end.
fn search<'a>(options: &'a [u8], kind: u8, magic: &[u8]) -> (Result<&'a [u8], u64>, bool) {
    let mut rest = options;
    loop {
        rest = match rest {
            [] => return (Err(ENOMSG), false),
            [END, ..] => return (Err(ENOMSG), true),
            [NOTHING, rest @ ..] => rest,
            [found, len, ..] if *len >= 2 && usize::from(*len) <= rest.len() => {
                let (option, behind) = rest.split_at(usize::from(*len));
                if *found == kind && option[2..].starts_with(magic) {
                    return (Ok(option), false);
                }
                behind
            }
            _ => return (Err(EFAULT), false),
        };
    }
}

/// Copies an option of the header, or of the SYN's, to where its kind is said.
#[inline]
pub(super) unsafe fn load(context: u64, at: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    /// `BPF_LOAD_HDR_OPT_TCP_SYN`.
    const OF_SYN: u64 = 1;
    let len = len as u32 as usize;
    if len < 2 || flags & !OF_SYN != 0 {
        return EINVAL;
    }
    let mut wanted = [0; 6];
    // SAFETY: the verifier proved that `len` bytes are readable. They are copied: other threads may write them.
    unsafe { std::ptr::copy(at as *const u8, wanted.as_mut_ptr(), len.min(wanted.len())) };
    let (kind, size) = (wanted[0], usize::from(wanted[1]));
    let magic = match (EXPERIMENTS.contains(&kind), size) {
        (true, 4 | 6) if size <= len => &wanted[2..size],
        (false, 0) => &[],
        _ => return EINVAL,
    };
    if matches!(kind, END | NOTHING) {
        return EINVAL;
    }
    // SAFETY: the call's own context and environment.
    let (socket, effects, operation) =
        unsafe { (own(context, env), Effects::of_run(env), operation(context)) };
    let Some(effects) = effects else { return EPERM };
    let kept;
    let header = if flags & OF_SYN != 0 {
        let Some(syn) = socket.and_then(|socket| socket.socket().options.get(SYN.0, SYN.1)) else {
            return ENOENT;
        };
        kept = syn;
        &kept
    } else if operation == LENGTH || effects.data.is_empty() {
        return EPERM;
    } else {
        &effects.data
    };
    let Some(options) = header.get(HEADER..) else { return EFAULT };
    match search(options, kind, magic).0 {
        Ok(option) => {
            // SAFETY: the verifier proved that `len` bytes are writable.
            unsafe { std::ptr::copy(option.as_ptr(), at as *mut u8, option.len().min(len)) };
            if option.len() > len { ENOSPC } else { option.len() as u64 }
        }
        Err(errno) => errno,
    }
}

/// Appends an option to the header.
#[inline]
pub(super) unsafe fn store(context: u64, from: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let len = len as u32 as usize;
    // SAFETY: the call's own context and environment.
    let (effects, operation) = unsafe { (Effects::of_run(env), operation(context)) };
    let Some(effects) = effects.filter(|_| operation == WRITE) else { return EPERM };
    if len < 2 || flags != 0 {
        return EINVAL;
    }
    let mut bytes = [0; LONGEST];
    // SAFETY: the verifier proved that `len` bytes are readable. They are copied: other threads may write them.
    unsafe { std::ptr::copy(from as *const u8, bytes.as_mut_ptr(), len.min(LONGEST)) };
    let (kind, size) = (bytes[0], usize::from(bytes[1]));
    let experiment = EXPERIMENTS.contains(&kind);
    if matches!(kind, END | NOTHING) || size > len || size < if experiment { 4 } else { 2 } {
        return EINVAL;
    }
    if size > effects.option_room as usize {
        return ENOSPC;
    }
    let Some(options) = effects.data.get(HEADER..) else { return EFAULT };
    match search(options, kind, if experiment { &bytes[2..4] } else { &[] }) {
        (Ok(_), _) => return EEXIST,
        (Err(ENOMSG), false) => {}
        (Err(ENOMSG), true) => return ENOSPC,
        (Err(errno), _) => return errno,
    }
    // There is room, so the header stays where it is.
    if effects.data.capacity() - effects.data.len() < size {
        return ENOSPC;
    }
    effects.data.extend_from_slice(&bytes[..size]);
    effects.option_room -= size as u32;
    let end = effects.data.as_ptr_range().end.addr() as u64;
    // SAFETY: the context is the run's own; nothing else accesses it while a helper runs.
    unsafe { *((context + DATA_END) as *mut u64) = end };
    0
}

/// Takes bytes of the room for options.
#[inline]
pub(super) unsafe fn reserve(context: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let len = len as u32;
    // SAFETY: the call's own context and environment.
    let (effects, operation) = unsafe { (Effects::of_run(env), operation(context)) };
    let Some(effects) = effects.filter(|_| operation == LENGTH) else { return EPERM };
    if flags != 0 || len < 2 {
        return EINVAL;
    }
    match effects.option_room.checked_sub(len) {
        Some(left) => {
            effects.option_room = left;
            0
        }
        None => ENOSPC,
    }
}
