//! The helpers that skep provides, numbered and named as in Linux's `enum bpf_func_id`, and those of the
//! public conformance suite.

use crate::helper::{Access, ArgKind, HelperProto, RetKind};

use Access::{Read, ReadWrite, Write};
use ArgKind::{Anything, Context, Map, MapKey, MapValue, None as No, Printed, Scalar, Size};

/// Prototypes of Linux's helpers, ascending by number.
pub static LINUX: &[HelperProto] = &[
    helper(1, "map_lookup_elem", [Map, MapKey, No, No, No], RetKind::MapValueOrNull),
    helper(2, "map_update_elem", [Map, MapKey, MapValue(Read), Scalar, No], STATUS),
    helper(3, "map_delete_elem", [Map, MapKey, No, No, No], STATUS),
    helper(5, "ktime_get_ns", [No; 5], RetKind::Scalar),
    gpl(
        6,
        "trace_printk",
        [memory(Read, false), Size { zero: true }, Printed, Printed, Printed],
        RetKind::Scalar,
    ),
    helper(7, "get_prandom_u32", [No; 5], U32),
    helper(8, "get_smp_processor_id", [No; 5], U32),
    moves(9, "skb_store_bytes", [Context, Scalar, memory(Read, false), Size { zero: false }, Scalar], STATUS),
    moves(10, "l3_csum_replace", [Context, Scalar, Scalar, Scalar, Scalar], STATUS),
    moves(11, "l4_csum_replace", [Context, Scalar, Scalar, Scalar, Scalar], STATUS),
    helper(12, "tail_call", [Context, Map, Scalar, No, No], RetKind::TailCall),
    helper(26, "skb_load_bytes", [Context, Scalar, memory(Write, false), Size { zero: false }, No], STATUS),
    helper(
        28,
        "csum_diff",
        [memory(Read, true), Size { zero: true }, memory(Read, true), Size { zero: true }, Scalar],
        RetKind::Scalar,
    ),
    moves(44, "xdp_adjust_head", [Context, Scalar, No, No, No], STATUS),
    moves(54, "xdp_adjust_meta", [Context, Scalar, No, No, No], STATUS),
    moves(65, "xdp_adjust_tail", [Context, Scalar, No, No, No], STATUS),
    helper(125, "ktime_get_boot_ns", [No; 5], RetKind::Scalar),
    gpl(
        177,
        "trace_vprintk",
        [memory(Read, false), Size { zero: true }, memory(Read, true), Size { zero: true }, No],
        RetKind::Scalar,
    ),
];

/// Prototypes of the helpers that the public `bpf_conformance` suite calls, by their numbers there.
pub static CONFORMANCE: &[HelperProto] = &[
    helper(0, "gather_bytes", [Anything; 5], RetKind::Scalar),
    helper(1, "memfrob", [memory(ReadWrite, false), Size { zero: true }, No, No, No], RetKind::Scalar),
    helper(2, "trash_registers", [No; 5], RetKind::Scalar),
    helper(3, "sqrti", [Scalar, No, No, No, No], RetKind::Scalar),
    helper(4, "strcmp_ext", [STRING, STRING, No, No, No], RetKind::Scalar),
    helper(5, "unwind", [Scalar, No, No, No, No], RetKind::Scalar),
];

/// The prototype of Linux's helper of that number.
pub fn linux_helper(id: u32) -> Option<&'static HelperProto> {
    LINUX.binary_search_by_key(&id, |proto| proto.id).ok().map(|at| &LINUX[at])
}

/// 0, or a negated error number.
const STATUS: RetKind = RetKind::Range { min: -4095, max: 0 };
/// The start of a string; its end is the helper's care.
const STRING: ArgKind = ArgKind::FixedMemory { access: Read, bytes: 1 };
const U32: RetKind = RetKind::Range { min: 0, max: u32::MAX as i64 };

const fn helper(id: u32, name: &'static str, args: [ArgKind; 5], ret: RetKind) -> HelperProto {
    HelperProto::new(id, name, args, ret)
}

/// A helper for programs under a GPL-compatible licence alone.
const fn gpl(id: u32, name: &'static str, args: [ArgKind; 5], ret: RetKind) -> HelperProto {
    let mut proto = HelperProto::new(id, name, args, ret);
    proto.gpl_only = true;
    proto
}

/// A helper after which no packet pointer holds.
const fn moves(id: u32, name: &'static str, args: [ArgKind; 5], ret: RetKind) -> HelperProto {
    let mut proto = HelperProto::new(id, name, args, ret);
    proto.moves_packet = true;
    proto
}

const fn memory(access: Access, nullable: bool) -> ArgKind {
    ArgKind::Memory { access, nullable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_ascend_so_that_binary_search_finds_all() {
        for table in [LINUX, CONFORMANCE] {
            assert!(table.is_sorted_by_key(|proto| proto.id));
        }
        assert_eq!(linux_helper(28).map(|p| &*p.name), Some("csum_diff"));
        assert!(linux_helper(4).is_none());
    }

    #[test]
    fn every_size_follows_its_memory_and_every_key_its_map() {
        for proto in LINUX.iter().chain(CONFORMANCE) {
            for (i, arg) in proto.args.iter().enumerate() {
                match arg {
                    Size { .. } => {
                        assert!(matches!(proto.args[i - 1], ArgKind::Memory { .. }), "{}", proto.name)
                    }
                    MapKey | MapValue(_) => assert!(proto.args[..i].contains(&Map), "{}", proto.name),
                    _ => {}
                }
            }
        }
    }
}
