//! Which maps use large pages. This needs a process of its own, because the system counts by process.

mod common;

use std::{fs, ptr};

use common::{create, def};
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::UpdateFlags;
use skep_testkit::{Hidden, hidden, is_emulated, say};

/// KiB of large pages, and of all pages, of the process.
fn held() -> (u64, u64) {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let of = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    (of("AnonHugePages:"), of("Rss:"))
}

/// KiB of large pages that the system provides for an 8 MiB request.
fn on_offer() -> u64 {
    const LEN: usize = 8 << 20;
    const LARGE: usize = 2 << 20;
    let all = libc::PROT_READ | libc::PROT_WRITE;
    let before = held();
    // SAFETY: new memory, with `LEN` bytes from its first multiple of `LARGE` on; it is unmapped at the end.
    unsafe {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let memory = libc::mmap(ptr::null_mut(), LEN + LARGE, all, private, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let start = memory.byte_add(memory.align_offset(LARGE));
        libc::madvise(start, LEN, libc::MADV_HUGEPAGE);
        start.write_bytes(1, LEN);
        let after = held();
        libc::munmap(memory, LEN + LARGE);
        after.0.saturating_sub(before.0)
    }
}

/// The memory of a table for half a million elements that contains `few`.
fn taken(flags: MapFlags, few: u32) -> (u64, u64) {
    let def = MapDef { flags, ..def(MapKind::Hash, 4, 8, 1 << 19) };
    let before = held();
    let map = create(&def).unwrap();
    for key in 0..few {
        map.update(&key.to_ne_bytes(), &[1; 8], UpdateFlags::Any).unwrap();
    }
    let after = held();
    (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
}

#[test]
fn only_preallocated_tables_use_large_pages() {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if is_emulated() || !(enabled.contains("[madvise]") || enabled.contains("[always]")) {
        return hidden(Hidden::HugePages, "tables in large pages");
    }
    if enabled.contains("[madvise]") {
        // Its 300 buckets are in 300 small pages of the 8 MiB array.
        let (large, all) = taken(MapFlags::NO_PREALLOC, 300);
        assert_eq!(large, 0, "KiB of large pages, of a table that takes memory as elements come");
        assert!(all < 4096, "{all} KiB for 300 elements");
    }
    for attempt in 1.. {
        let (large, all) = taken(MapFlags::default(), 300);
        if large >= 4096 {
            break;
        }
        // The system may have none while its memory is fragmented.
        let on_offer = on_offer();
        if on_offer < 8192 {
            return say(&format!("tables in large pages: the system has only {on_offer} KiB of them now"));
        }
        assert!(attempt < 5, "{large} KiB of large pages, {all} in all, where there are {on_offer}");
    }
}
