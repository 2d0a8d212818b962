//! Helpers that read and write the packets of socket buffers.

use super::errno::{EFAULT, EINVAL};
use crate::image::{Image, Input};
use crate::packet::Effects;
use skep_abi::{RunEnv, SkbContext};

/// `BPF_F_RECOMPUTE_CSUM`: the sum of the packet's bytes, if it is known, is kept up to date.
const RECOMPUTE: u64 = 1;
/// `BPF_F_INVALIDATE_HASH`.
const INVALIDATE_HASH: u64 = 2;

/// `bpf_skb_load_bytes` of programs with a packet, or with the bytes of a [`crate::Context`].
#[inline]
pub(super) unsafe fn load_bytes(context: u64, offset: u64, to: u64, len: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as below; `env` is the environment of the run in progress.
    unsafe {
        match Image::of_run(env).input {
            Input::Context => load_data(offset, to, len, env),
            _ => skb_load_bytes(context, offset, to, len, env),
        }
    }
}

/// `bpf_skb_load_bytes_relative`, likewise. The bytes of a context begin behind the headers that it counts from.
#[inline]
pub(super) unsafe fn load_bytes_relative(
    context: u64,
    offset: u64,
    to: u64,
    len: u64,
    start: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    unsafe {
        match Image::of_run(env).input {
            Input::Context => load_data(u64::MAX, to, len, env),
            _ => super::skb::load_bytes_relative(context, offset, to, len, start, env),
        }
    }
}

/// Copies from the bytes of the run's context.
///
/// # Safety
///
/// `env` is the environment of the run in progress; `to` is writable for `len` bytes.
#[cold]
unsafe fn load_data(offset: u64, to: u64, len: u64, env: *mut RunEnv) -> u64 {
    let (offset, len) = (offset as u32 as usize, len as u32 as usize);
    // SAFETY: the caller's promise; no other reference to the effects exists. The program may have passed a part of the
    // same bytes, so they are only pointed to, and `copy` allows overlap.
    unsafe {
        let to = to as *mut u8;
        let data = Effects::of_run(env)
            .map_or((std::ptr::null(), 0), |effects| (effects.data.as_ptr(), effects.data.len()));
        if offset.checked_add(len).is_none_or(|end| end > data.1) {
            to.write_bytes(0, len);
            return EFAULT;
        }
        std::ptr::copy(data.0.add(offset), to, len);
    }
    0
}

#[inline]
pub(super) unsafe fn skb_load_bytes(context: u64, offset: u64, to: u64, len: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own, and only socket-buffer programs may call this.
    let skb = unsafe { &*(context as *const SkbContext) };
    let len = u64::from(len as u32);
    match packet_range(skb, offset, len) {
        Some(from) => {
            // SAFETY: `from` has `len` bytes in the packet, `to` is writable for `len` (proved). The program's own
            // memory and the packet overlap only if the packet itself was passed, so `copy` allows overlap.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
            0
        }
        None => {
            // SAFETY: `to` is writable for `len`.
            unsafe { std::ptr::write_bytes(to as *mut u8, 0, len as usize) };
            EFAULT
        }
    }
}

#[inline]
pub(super) unsafe fn skb_store_bytes(
    context: u64,
    offset: u64,
    from: u64,
    len: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    let skb = unsafe { &mut *(context as *mut SkbContext) };
    if flags & !(RECOMPUTE | INVALIDATE_HASH) != 0 {
        return EINVAL;
    }
    let len = u64::from(len as u32);
    let Some(to) = packet_range(skb, offset, len) else { return EFAULT };
    // SAFETY: `to` has `len` bytes in the packet, `from` is readable for `len` (proved).
    let store = || unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
    if flags & RECOMPUTE == 0 {
        store();
    } else {
        // SAFETY: the context is the run's own.
        unsafe { super::checksum::tracked(skb, |_| store()) };
    }
    if flags & INVALIDATE_HASH != 0 {
        skb.hash = 0;
    }
    0
}

/// The address of `len` bytes at `offset` in the packet, if all of them are in it.
pub(super) fn packet_range(skb: &SkbContext, offset: u64, len: u64) -> Option<u64> {
    let offset = u64::from(offset as u32);
    let size = skb.data_end - skb.data;
    (offset.checked_add(len)? <= size).then_some(skb.data + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_past_the_packet_fail_and_zero_the_destination() {
        let packet = *b"0123456789";
        let skb = SkbContext {
            data: packet.as_ptr() as u64,
            data_end: packet.as_ptr() as u64 + 10,
            ..SkbContext::default()
        };
        let load = |offset: u64, out: &mut [u8]| {
            // SAFETY: `out` is writable for its length, `skb` describes `packet`.
            unsafe {
                skb_load_bytes(
                    &raw const skb as u64,
                    offset,
                    out.as_mut_ptr() as u64,
                    out.len() as u64,
                    std::ptr::null_mut(),
                ) as i64
            }
        };
        let mut out = [0xaa; 4];
        assert_eq!((load(6, &mut out), &out), (0, b"6789"));
        assert_eq!((load(7, &mut out), &out), (-14, &[0; 4]));
        assert_eq!(load(u64::from(u32::MAX), &mut out), -14);
    }
}
