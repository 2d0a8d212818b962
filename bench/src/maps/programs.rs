//! The programs: each passes over 1,024 keys of a table, and does one thing with each.
//!
//! ```text
//!   packet   0 .. 31 | 32 where in the table to begin | 36 bits of every key | 40 zero | 44 .. 63
//!   table    a power of two of u32 keys, in random order; each run takes the next 1,024
//!   stack    -16 value | -8 length of the prefix, of tries | -4 key
//! ```
//!
//! They are for packets, so that skep and the running kernel can be given the same text. The result is how many
//! operations succeeded. That count starts from a word of the packet, which the verifier does not know: from a known
//! number, no two iterations of the loop would have equal states.

use crate::Result;
use crate::programs::assembled;
use crate::random::Random;
use serde::Serialize;
use skep::Object;
use skep::abi::{MapDef, MapFlags, MapKind, SCHED_CLS};

/// Keys that a run passes over.
pub(super) const WINDOW: u32 = 1024;
/// Bytes of the packet.
pub(super) const PACKET: usize = 64;
/// Set in keys that no map has from the start.
pub(super) const ABSENT: u32 = 1 << 31;
/// Keys of one thread that no other uses.
const OWN: u32 = 30;

/// The operation on each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    /// Nothing: the loop alone.
    Nothing,
    /// The value of an element is read.
    LookUp,
    /// An element that is there is replaced or written.
    Update,
    /// An element is deleted.
    Delete,
    /// An element is added, and deleted again.
    InsertDelete,
    /// A value is put in, and one is taken out.
    PushPop,
    /// A record is reserved, written and submitted, without a wake-up.
    ReserveSubmit,
}

impl Op {
    fn body(self, key: i32) -> String {
        let key = format!("r1 = map[0] ll\nr2 = r10\nr2 += {key}\n");
        let update = format!("{key}r3 = r10\nr3 += -16\nr4 = 0\ncall 2\nif r0 != 0 goto next\n");
        let delete = format!("{key}call 3\nif r0 != 0 goto next\n");
        match self {
            Self::Nothing => String::new(),
            Self::LookUp => format!("{key}call 1\nif r0 == 0 goto next\nr0 = *(u64 *)(r0 + 0)\n"),
            Self::Update => update,
            Self::Delete => delete,
            Self::InsertDelete => update + &delete,
            Self::PushPop => {
                let value = "r1 = map[0] ll\nr2 = r10\nr2 += -16\n";
                format!(
                    "{value}r3 = 0\ncall 87\nif r0 != 0 goto next\n{value}call 88\nif r0 != 0 goto next\n"
                )
            }
            Self::ReserveSubmit => "r1 = map[0] ll\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto next\n\
                 *(u64 *)(r0 + 0) = r7\nr1 = r0\nr2 = 1\ncall 132\n"
                .to_owned(),
        }
    }
}

/// A kind of map, and what can be done with its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) kind: MapKind,
    pub(super) ops: &'static [Op],
    flags: MapFlags,
    key_size: u32,
    /// Elements that there is room for, for each that is there.
    room: u32,
}

const ALL_OPS: &[Op] = &[Op::LookUp, Op::Update, Op::InsertDelete];
const IN_PLACE: &[Op] = &[Op::LookUp, Op::Update];
const ENDS: &[Op] = &[Op::PushPop];
/// Bytes of a ring buffer: enough for all records of a turn, of 16 bytes each with their headers, before and on the
/// clock.
const RING: u32 = 1 << 25;

const fn kind(kind: MapKind, ops: &'static [Op], flags: MapFlags, key_size: u32, room: u32) -> Kind {
    Kind { kind, ops, flags, key_size, room }
}

/// Every kind that is measured where it is provided.
pub(super) const KINDS: [Kind; 9] = [
    kind(MapKind::Hash, ALL_OPS, MapFlags(0), 4, 2),
    kind(MapKind::PercpuHash, ALL_OPS, MapFlags(0), 4, 2),
    kind(MapKind::LruHash, ALL_OPS, MapFlags(0), 4, 2),
    kind(MapKind::Array, IN_PLACE, MapFlags(0), 4, 1),
    kind(MapKind::PercpuArray, IN_PLACE, MapFlags(0), 4, 1),
    kind(MapKind::LpmTrie, ALL_OPS, MapFlags::NO_PREALLOC, 8, 2),
    kind(MapKind::Queue, ENDS, MapFlags(0), 0, 2),
    kind(MapKind::Stack, ENDS, MapFlags(0), 0, 2),
    kind(MapKind::Ringbuf, &[Op::ReserveSubmit], MapFlags(0), 0, 0),
];

impl Kind {
    pub(super) fn def(&self, entries: u32) -> MapDef {
        let mut def = match self.kind {
            MapKind::Ringbuf => MapDef::new("measured", self.kind, 0, 0, RING),
            _ => MapDef::new("measured", self.kind, self.key_size, 8, entries * self.room),
        };
        def.flags = self.flags;
        def
    }

    /// A key as the map takes it: a trie's has the length of its prefix first.
    pub(super) fn key(&self, key: u32) -> ([u8; 8], usize) {
        let mut bytes = [0; 8];
        let at = self.key_size.saturating_sub(4) as usize;
        bytes[..4].copy_from_slice(&32u32.to_ne_bytes());
        bytes[at..at + 4].copy_from_slice(&key.to_ne_bytes());
        (bytes, self.key_size as usize)
    }

    /// Whether it has keys, so that elements can be put into it before.
    pub(super) fn has_keys(&self) -> bool {
        self.key_size > 0
    }
}

/// Keys from 0 to `entries` in random order, all equally often.
pub(super) fn keys(entries: u32) -> Vec<u32> {
    let len = entries.max(WINDOW);
    let mut keys: Vec<u32> = (0..len).map(|at| at % entries).collect();
    Random(u64::from(entries)).shuffle(&mut keys);
    keys
}

/// The map that the table of keys is in.
pub(super) fn table(keys: &[u32]) -> MapDef {
    MapDef::new("keys", MapKind::Array, 4, 4 * keys.len() as u32, 1)
}

/// As the value of that map.
pub(super) fn bytes(keys: &[u32]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_ne_bytes()).collect()
}

/// Bits that are set in every key of a thread, for one operation.
pub(super) fn bits(op: Op, thread: u32) -> u32 {
    if op == Op::InsertDelete { ABSENT | thread << OWN } else { 0 }
}

/// The packet of a thread. Each thread begins in another part of the table.
pub(super) fn packet(op: Op, thread: u32, keys: usize) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[32..36].copy_from_slice(&first(thread, keys).to_ne_bytes());
    packet[36..40].copy_from_slice(&bits(op, thread).to_ne_bytes());
    packet
}

/// Where in the table a thread begins.
pub(super) fn first(thread: u32, keys: usize) -> u32 {
    (thread * (keys as u32 / 2)) & !(WINDOW - 1)
}

/// The keys that a thread's host passes over, by windows.
pub(super) fn walk(keys: &[u32], thread: u32, windows: u32) -> impl Iterator<Item = &[u32]> {
    let window = WINDOW as usize;
    let from = first(thread, keys.len()) as usize / window;
    (0..windows as usize).map(move |at| {
        let start = (from + at) * window % keys.len();
        &keys[start..start + window]
    })
}

/// The program for a table of `keys` keys.
pub(super) fn text(kind: &Kind, op: Op, keys: usize) -> String {
    let mask = (keys as u32 - 1) & !(WINDOW - 1);
    let key = if kind.key_size == 8 { -8 } else { -4 };
    format!(
        "r2 = *(u32 *)(r1 + 76)
         r3 = *(u32 *)(r1 + 80)
         r4 = r2
         r4 += {PACKET}
         r0 = 0
         if r4 > r3 goto out
         r8 = *(u32 *)(r2 + 32)
         w8 &= {mask}
         r3 = r8
         w3 += {WINDOW}
         *(u32 *)(r2 + 32) = r3
         r9 = *(u32 *)(r2 + 36)
         r6 = *(u32 *)(r2 + 40)
         w8 <<= 2
         r1 = map_value[1] ll
         r1 += r8
         r8 = r1
         r7 = 0
         *(u32 *)(r10 - 8) = 32
     again:
         r1 = *(u32 *)(r8 + 0)
         w1 |= w9
         *(u32 *)(r10 - 4) = r1
         *(u64 *)(r10 - 16) = r7
         {}
         w6 += 1
     next:
         r8 += 4
         w7 += 1
         if w7 != {WINDOW} goto again
         w0 = w6
     out:
         exit",
        op.body(key)
    )
}

/// The program and its two maps as an object.
pub(super) fn object(kind: &Kind, op: Op, entries: u32, keys: &[u32]) -> Result<Object> {
    assembled("map", &SCHED_CLS, &text(kind, op, keys.len()), vec![kind.def(entries), table(keys)])
}
