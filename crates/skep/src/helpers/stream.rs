//! Helpers over maps of sockets: where a message goes, which socket of a group receives, and the message's bytes.
//!
//! A message is the bytes of a [`crate::Context`]. Its program sees a part of them, from `data` to `data_end`: all of
//! them at first, and what [`pull_data`] says later.

use super::errno::{E2BIG, EINVAL, ENOENT, ENOMEM};
use super::socket::own;
use crate::packet::{Effects, Redirect};
use crate::socket::NativeSocket;
use skep_abi::RunEnv;
use skep_maps::{Map, Member};
use skep_world::{Socket, SocketState};
use std::sync::Arc;

const EBADFD: u64 = -77i64 as u64;
const EPROTOTYPE: u64 = -91i64 as u64;
const EAFNOSUPPORT: u64 = -97i64 as u64;
/// Verdicts: `SK_DROP` and `SK_PASS`.
const DROP: u64 = 0;
const PASS: u64 = 1;
/// `BPF_F_INGRESS`.
const INGRESS: u64 = 1;
/// The longest message that helpers make, in bytes.
const LONGEST: usize = 1 << 20;

/// The element of a key.
///
/// # Safety
///
/// `map` is a map, `key` readable for its key size, `env` the environment of the run in progress.
unsafe fn member<'a>(map: u64, key: *const u8, env: *mut RunEnv) -> Option<&'a Member> {
    // SAFETY: the caller's promise; the run is in a section of the map's domain, as this virtual CPU.
    unsafe { (*std::ptr::with_exposed_provenance::<Map>(map as usize)).member_ptr(key, (*env).cpu) }
}

fn native(member: &Member) -> Option<Arc<NativeSocket>> {
    Arc::clone(member.object()).downcast().ok()
}

/// Sends the packet or message to the socket at an index.
#[inline]
pub(super) unsafe fn redirect_map(_context: u64, map: u64, index: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let key = (index as u32).to_ne_bytes();
    // SAFETY: the verifier proved that it is a `sockmap`, whose keys have four bytes.
    unsafe { redirect(map, key.as_ptr(), flags, env) }
}

/// Sends the packet or message to the socket of a key.
#[inline]
pub(super) unsafe fn redirect_hash(_context: u64, map: u64, key: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is a map, and the key readable for its key size.
    unsafe { redirect(map, key as *const u8, flags, env) }
}

/// # Safety
///
/// As for [`member`].
unsafe fn redirect(map: u64, key: *const u8, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise.
    let (member, effects) = unsafe { (member(map, key, env), Effects::of_run(env)) };
    let (Some(member), Some(effects)) = (member.filter(|_| flags & !INGRESS == 0), effects) else {
        return DROP;
    };
    let socket = native(member);
    // A socket that listens sends and receives nothing.
    if socket.as_ref().is_some_and(|socket| socket.socket().state == SocketState::Listen) {
        return DROP;
    }
    effects.redirect = Some(Redirect::Stream { cookie: member.id(), ingress: flags & INGRESS != 0 });
    effects.sockets().chosen = Some(socket);
    PASS
}

/// Chooses a socket of a map to receive the packet.
#[inline]
pub(super) unsafe fn select_reuseport(context: u64, map: u64, key: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the call's own arguments: the map is one, the key is readable for its key size.
    let (member, effects, group) =
        unsafe { (member(map, key as *const u8, env), Effects::of_run(env), own(context, env)) };
    if flags != 0 {
        return EINVAL;
    }
    let (Some(member), Some(effects)) = (member, effects) else { return ENOENT };
    let Some(socket) = native(member) else { return ENOENT };
    if let Some(group) = group {
        let (wanted, given) = (group.words(), socket.words());
        if wanted[3] != given[3] {
            return EPROTOTYPE;
        }
        if wanted[1] != given[1] {
            return EAFNOSUPPORT;
        }
        let (group, socket) = (group.socket(), socket.socket());
        let address = |socket: &Socket| (socket.namespace, socket.local, socket.device, socket.reuse_port);
        // A context of the host may be about sockets that say nothing of groups.
        if group.reuse_port && address(group) != address(socket) {
            return EBADFD;
        }
    }
    effects.sockets().chosen = Some(Some(socket));
    0
}

#[inline]
pub(super) unsafe fn apply_bytes(_context: u64, bytes: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is the environment of the run in progress.
    if let Some(effects) = unsafe { Effects::of_run(env) } {
        effects.sockets().apply = Some(bytes as u32);
    }
    0
}

#[inline]
pub(super) unsafe fn cork_bytes(_context: u64, bytes: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    if let Some(effects) = unsafe { Effects::of_run(env) } {
        effects.sockets().cork = Some(bytes as u32);
    }
    0
}

/// Lets the program see the bytes from `start` to `end`.
#[inline]
pub(super) unsafe fn pull_data(context: u64, start: u64, end: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let (start, end) = (start as u32 as usize, end as u32 as usize);
    // SAFETY: as above.
    let Some(effects) = (unsafe { Effects::of_run(env) }) else { return EINVAL };
    if flags != 0 || start >= end || end > effects.data.len() {
        return EINVAL;
    }
    // SAFETY: the verifier proved that `context` is the run's own, and only programs over messages may call this.
    unsafe { show(context, effects, start, end) };
    0
}

/// Inserts zeroes. The program sees the whole message then.
#[inline]
pub(super) unsafe fn push_data(context: u64, start: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let (start, len) = (start as u32 as usize, len as u32 as usize);
    // SAFETY: as above.
    let Some(effects) = (unsafe { Effects::of_run(env) }) else { return EINVAL };
    if flags != 0 || start > effects.data.len() {
        return EINVAL;
    }
    if len == 0 {
        return 0;
    }
    if effects.data.len() + len > LONGEST {
        return if len > LONGEST { E2BIG } else { ENOMEM };
    }
    effects.data.splice(start..start, std::iter::repeat_n(0, len));
    let whole = effects.data.len();
    // SAFETY: as above.
    unsafe { show(context, effects, 0, whole) };
    0
}

/// Removes bytes. The program sees the whole message then.
#[inline]
pub(super) unsafe fn pop_data(context: u64, start: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let (start, len) = (start as u32 as usize, len as u32 as usize);
    // SAFETY: as above.
    let Some(effects) = (unsafe { Effects::of_run(env) }) else { return EINVAL };
    if flags != 0 || start >= effects.data.len() || len > effects.data.len() - start {
        return EINVAL;
    }
    effects.data.drain(start..start + len);
    let whole = effects.data.len();
    // SAFETY: as above.
    unsafe { show(context, effects, 0, whole) };
    0
}

/// Sets the addresses that the program sees, and the message's size.
///
/// # Safety
///
/// `context` is the run's own `struct sk_msg_md`; the range is in the message.
unsafe fn show(context: u64, effects: &mut Effects, start: usize, end: usize) {
    /// Its place in the structure.
    const SIZE: u64 = 68;
    let data = effects.data.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the caller's promise; nothing else accesses the context while a helper runs.
    unsafe {
        *(context as *mut [u64; 2]) = [data + start as u64, data + end as u64];
        *((context + SIZE) as *mut u32) = effects.data.len() as u32;
    }
}
