//! Intended differences between skep's answers and Linux's.

use skep_abi::MapKind;

use crate::cases::Case;
use crate::ops::Op;

/// A difference: its condition (the case, the operation, Linux's answer and skep's), and its reason.
struct Difference {
    is_met: fn(&Case, &Op, &str, &str) -> bool,
    why: &'static str,
}

const DIFFERENCES: &[Difference] = &[PREFIX_TOO_LONG, NOT_FOR_KIND, INDEX_FIRST];

/// The number 524 is not an errno of the user-space interface: it means that a kind lacks an operation.
const NOT_FOR_KIND: Difference = Difference {
    is_met: |_, op, linux, here| {
        matches!(op, Op::Take(_) | Op::TakeBatch(_) | Op::DeleteBatch(_))
            && matches!((linux, here), ("error 524", "error 95") | ("0, then error 524", "0, then error 22"))
    },
    why: "what a kind cannot do is EOPNOTSUPP (95); deletion from an array is EINVAL, one by one or in a batch",
};

/// `BPF_F_LOCK`.
const LOCK: u64 = 4;

const INDEX_FIRST: Difference = Difference {
    is_met: |case, op, linux, here| {
        matches!(case.kind, MapKind::Array | MapKind::PercpuArray)
            && matches!(op, Op::Update(_, _, flags) if flags & LOCK != 0)
            && matches!((linux, here), ("error 22", "error 7" | "error 17"))
    },
    why: "a program's update of an array without a lock says first that the index or the element is wrong, also in Linux",
};

const PREFIX_TOO_LONG: Difference = Difference {
    is_met: |case, op, linux, here| {
        let too_long = |key: &[u8]| {
            let len = key.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len));
            len > (case.key_size - 4) * 8
        };
        case.kind == MapKind::LpmTrie
            && matches!(op, Op::Lookup(key) if too_long(key))
            && (linux, here) == ("error 2", "error 22")
    },
    why: "a host that looks up a prefix longer than the key is told of its mistake, not that there is no such key",
};

/// The reason of a known difference.
pub(crate) fn difference(case: &Case, op: &Op, linux: &str, here: &str) -> Option<&'static str> {
    DIFFERENCES.iter().find(|difference| (difference.is_met)(case, op, linux, here)).map(|known| known.why)
}
