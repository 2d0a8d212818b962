//! What the texts of errors say about kinds of maps.

use skep_abi::MapKind;

/// What a value of a map of targets is.
pub(super) fn target(kind: MapKind) -> &'static str {
    match kind {
        MapKind::Cpumap => "a queue has 1 to 16384 packets, and a program is set by itself",
        _ => "a device's index is not 0, and a program is set by itself",
    }
}

/// The call that makes elements, and what the host may do.
pub(super) fn maker(kind: MapKind) -> &'static str {
    match kind {
        MapKind::StackTrace => "bpf_get_stackid): read and delete them",
        _ => "bpf_get_local_storage): read and change them",
    }
}

pub(super) fn undeletable(kind: MapKind) -> &'static str {
    if kind.is_storage() { "a storage" } else { "an array" }
}

pub(super) fn push_flags(kind: MapKind) -> &'static str {
    match kind {
        MapKind::BloomFilter => "BPF_ANY",
        _ => "BPF_ANY or BPF_EXIST",
    }
}

pub(super) fn list(kinds: &[MapKind]) -> String {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

pub(super) fn per_cpu(cpus: &Option<u32>, value_size: &u32) -> String {
    match cpus {
        Some(cpus) => format!(" ({cpus} CPUs with {value_size} bytes each, in whole words of 8)"),
        None => String::new(),
    }
}

/// The kinds whose values may have a field, as the end of a sentence.
pub(super) fn holders(kinds: &[MapKind]) -> String {
    match kinds {
        [] => "no kind that is provided can".to_owned(),
        [one] => format!("those of {one} can"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|kind| kind.name()).collect();
            format!("those of {} and {last} can", first.join(", "))
        }
    }
}

/// The methods of a kind without keys.
pub(super) fn methods(kind: MapKind) -> &'static str {
    match kind {
        MapKind::BloomFilter => "`push` and `contains`",
        MapKind::Ringbuf => "a `RingBuffer`",
        MapKind::UserRingbuf => "a `UserRingBuffer`",
        MapKind::Arena => "`Map::arena`",
        _ => "`push`, `pop` and `peek`",
    }
}
