//! Samples for arrays of perf events.

use super::errno::{EFAULT, EINVAL};
use super::map::map;
use crate::image::{Image, Input};
use crate::packet::{Effects, Event};
use skep_abi::{RunEnv, SkbContext, XdpContext};

/// `BPF_F_INDEX_MASK`, of which all bits stand for the CPU of the run.
const INDEX: u64 = 0xffff_ffff;
/// `BPF_F_CTXLEN_MASK`: how many bytes of the packet follow.
const PACKET_SHIFT: u64 = 32;
const PACKET: u64 = 0xf_ffff << PACKET_SHIFT;

/// Outputs a sample: the program's bytes, and as many of the packet as the flags say.
#[inline]
pub(super) unsafe fn output(
    context: u64,
    handle: u64,
    flags: u64,
    data: u64,
    bytes: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: `env` is the environment of the run in progress, and the verifier proved that `handle` is a map.
    let (image, cpu, map) = unsafe { (Image::of_run(env), (*env).cpu, map(handle)) };
    // SAFETY: the verifier proved that `context` is the run's own.
    let packet = unsafe {
        match image.input {
            Input::Xdp => {
                let xdp = &*(context as *const XdpContext);
                Some((xdp.data, xdp.data_end))
            }
            Input::Skb => {
                let skb = &*(context as *const SkbContext);
                Some((skb.data, skb.data_end))
            }
            _ => None,
        }
    };
    let known = if packet.is_some() { INDEX | PACKET } else { INDEX };
    if flags & !known != 0 {
        return EINVAL;
    }
    let (start, end) = packet.unwrap_or_default();
    let from_packet = flags >> PACKET_SHIFT;
    if from_packet > end - start {
        return EFAULT;
    }
    let index = if flags & INDEX == INDEX { cpu } else { flags as u32 };
    let first = (data as *const u8, bytes as u32);
    let second = (start as *const u8, from_packet as u32);
    // SAFETY: the verifier proved that `bytes` bytes are readable at `data`; the packet has the others.
    let status = unsafe { map.perf_output_ptr(index, cpu, first, second) };
    // SAFETY: as above; no other reference to the effects exists.
    if let Some(events) = unsafe { Effects::of_run(env) }.and_then(|effects| effects.events.as_mut())
        && status == 0
    {
        let copy = |(from, len): (*const u8, u32)| {
            // SAFETY: as above. Other threads may write to the program's bytes, which are copied one by one.
            (0..len as usize).map(move |at| unsafe { from.add(at).read_volatile() })
        };
        let bytes = copy(first).chain(copy(second)).collect();
        events.push(Event { map: map.name().to_owned(), cpu, bytes });
    }
    status as u64
}
