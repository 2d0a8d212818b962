//! Which helpers work on which kinds of maps, and which accept packet memory.

use super::set::HelperSet;
use crate::map::MapKind;

const ELEMENTS: HelperSet = HelperSet::of(&[1, 2, 3]);
const EACH: HelperSet = ELEMENTS.with(&[164]);
const PER_CPU: HelperSet = EACH.with(&[195]);
const STREAMS: HelperSet = ELEMENTS.with(&[82]);
const QUEUE: HelperSet = HelperSet::of(&[87, 88, 89]);

/// The helpers that accept packet bytes as memory arguments.
pub(crate) const PACKET_MEMORY: HelperSet =
    HelperSet::of(&[1, 2, 3, 28, 84, 85, 87, 99, 100, 110, 195, 204, 205, 206, 207]);

/// The helpers that work on maps of that kind. Elements of maps of sockets are written as sockets, not as memory.
pub fn map_helpers(kind: MapKind) -> HelperSet {
    let of = HelperSet::of;
    match kind {
        MapKind::Hash | MapKind::Array | MapKind::LruHash => EACH.with(&[169]),
        MapKind::PercpuHash | MapKind::PercpuArray | MapKind::LruPercpuHash => PER_CPU,
        MapKind::LpmTrie => ELEMENTS,
        MapKind::ProgArray => of(&[12]),
        MapKind::PerfEventArray => of(&[22, 25, 55, 111, 121]),
        MapKind::StackTrace => of(&[27]),
        MapKind::CgroupArray => of(&[33, 37]),
        MapKind::ArrayOfMaps | MapKind::HashOfMaps => of(&[1]),
        MapKind::Devmap | MapKind::DevmapHash | MapKind::Xskmap => of(&[1, 51]),
        MapKind::Cpumap => of(&[51]),
        MapKind::Sockmap => STREAMS.with(&[52, 53, 60]),
        MapKind::Sockhash => STREAMS.with(&[70, 71, 72]),
        MapKind::CgroupStorage | MapKind::PercpuCgroupStorage => of(&[81]),
        MapKind::ReuseportSockarray => of(&[82]),
        MapKind::Queue | MapKind::Stack => QUEUE,
        MapKind::BloomFilter => of(&[87, 89]),
        MapKind::SkStorage => of(&[107, 108]),
        MapKind::InodeStorage => of(&[145, 146]),
        MapKind::TaskStorage => of(&[156, 157]),
        MapKind::CgrpStorage => of(&[210, 211]),
        MapKind::Ringbuf => of(&[130, 131, 134, 198]),
        MapKind::UserRingbuf => of(&[209]),
        MapKind::StructOps | MapKind::Arena => HelperSet::EMPTY,
    }
}
