//! The programs: each passes over a number of keys in order.
//!
//! They are for packets, so that skep and the running kernel are given the same text. A word of the packet is the
//! first key. The result is how many updates failed (returned a negative number). They are counted without
//! branches: Linux's verifier remembers no more than 8,192 of those.

use crate::Result;
use crate::programs::assembled;
use skep::Object;
use skep::abi::{MapDef, MapFlags, MapKind, SCHED_CLS};

/// Keys in use.
pub(super) const KEYS: u32 = 8192;
/// Elements that the map has room for.
const ENTRIES: u32 = 16_384;
/// Bytes of the packet.
pub(super) const PACKET: usize = 64;

/// What a run does with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing.
    Nothing,
    /// Updates each.
    Update,
    /// Deletes each.
    Delete,
    /// Updates all, and then deletes all.
    UpdateAndDelete,
}

/// The map: elements are allocated as they come.
pub(super) fn map() -> MapDef {
    let mut def = MapDef::new("elements", MapKind::Hash, 4, 8, ENTRIES);
    def.flags = MapFlags::NO_PREALLOC;
    def
}

/// What a producer gives its programs.
pub(super) fn packet(first: u32) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[32..36].copy_from_slice(&first.to_ne_bytes());
    packet
}

fn pass(name: &str, keys: u32, body: &str) -> String {
    format!(
        "    r7 = 0
         {name}:
             r1 = r8
             w1 += w7
             *(u32 *)(r10 - 4) = r1
             *(u64 *)(r10 - 16) = r7
             {body}
             w7 += 1
             if w7 != {keys} goto {name}
        "
    )
}

/// The program that does this work over `keys` keys.
pub(super) fn text(work: Work, keys: u32) -> String {
    let key = "r1 = map[0] ll\nr2 = r10\nr2 += -4\n";
    let update = pass("add", keys, &format!("{key}r3 = r10\nr3 += -16\nr4 = 0\ncall 2\nr0 >>= 63\nw6 += w0"));
    let delete = pass("del", keys, &format!("{key}call 3"));
    let passes = match work {
        Work::Nothing => pass("nothing", keys, ""),
        Work::Update => update,
        Work::Delete => delete,
        Work::UpdateAndDelete => update + &delete,
    };
    format!(
        "    r2 = *(u32 *)(r1 + 76)
             r3 = *(u32 *)(r1 + 80)
             r4 = r2
             r4 += {PACKET}
             r0 = 0
             if r4 > r3 goto out
             r8 = *(u32 *)(r2 + 32)
             r6 = 0
             {passes}
             w0 = w6
         out:
             exit"
    )
}

/// It and the map as an object.
pub(super) fn object(work: Work, keys: u32) -> Result<Object> {
    assembled("htab_mem", &SCHED_CLS, &text(work, keys), vec![map()])
}
