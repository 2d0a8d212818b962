//! The kernel's view of our mappings: the two files of /proc that this crate reads.

use std::ops::Range;

use crate::error::SystemCall;
use crate::sys;

/// The process's mappings in order of address, with their names. Empty if /proc is not mounted.
pub(crate) fn mappings() -> Vec<(Range<usize>, String)> {
    let Ok(maps) = sys::read(SystemCall::ReserveRange, "/proc/self/maps") else { return Vec::new() };
    maps.lines()
        .filter_map(|line| {
            Some((address_range(line)?, line.split_whitespace().nth(5).unwrap_or("").to_owned()))
        })
        .collect()
}

/// Bytes in `range` that the kernel maps as huge pages. `None` if the kernel does not say.
pub(crate) fn huge_bytes(range: &Range<usize>) -> Option<u64> {
    Some(huge_bytes_in(&sys::read(SystemCall::CheckHuge, "/proc/self/smaps").ok()?, range))
}

/// Bytes that `smaps` reports as mapped by huge pages, in all mappings that overlap `range`.
pub(crate) fn huge_bytes_around(smaps: &str, range: &Range<usize>) -> u64 {
    huge_bytes_where(smaps, |mapping| {
        let overlap = mapping.start.max(range.start)..mapping.end.min(range.end);
        !overlap.is_empty()
    })
}

fn huge_bytes_in(smaps: &str, range: &Range<usize>) -> u64 {
    huge_bytes_where(smaps, |mapping| range.start <= mapping.start && mapping.end <= range.end)
}

fn huge_bytes_where(smaps: &str, ours: impl Fn(&Range<usize>) -> bool) -> u64 {
    // proc(5): AnonHugePages, ShmemPmdMapped and FilePmdMapped count bytes mapped by huge page-table entries.
    const HUGE: [&str; 3] = ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"];

    let mut counts = false;
    let mut kibibytes = 0;
    for line in smaps.lines() {
        if let Some(mapping) = address_range(line) {
            counts = ours(&mapping);
        } else if counts {
            let mut words = line.split_whitespace();
            if words.next().is_some_and(|name| HUGE.contains(&name)) {
                kibibytes += words.next().and_then(|word| word.parse().ok()).unwrap_or(0u64);
            }
        }
    }
    kibibytes * 1024
}

/// The address range at the beginning of a mapping's first line: `55d0c000-55d0e000 r-xp ...`.
fn address_range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_bytes_are_summed_over_the_mappings_inside_the_range_only() {
        let smaps = "\
1000-2000 r-xp 00000000 00:01 1 /a
Size:                  4 kB
AnonHugePages:      2048 kB
40000000-40200000 r-xs 00000000 00:01 1027                               /memfd:skep-text (deleted)
Size:               2048 kB
AnonHugePages:         0 kB
ShmemPmdMapped:     2048 kB
FilePmdMapped:         0 kB
VmFlags: rd ex sh mr me ms sd
40200000-40400000 r-xs 00000000 00:01 1028                               /memfd:skep-text (deleted)
ShmemPmdMapped:     1024 kB
7f0000000000-7f0000200000 rw-s 00000000 00:01 1027                       /memfd:skep-text (deleted)
ShmemPmdMapped:     2048 kB
";
        assert_eq!(huge_bytes_in(smaps, &(0x4000_0000..0x8000_0000)), 3 << 20);
        assert_eq!(huge_bytes_in(smaps, &(0x4000_0000..0x4020_0000)), 2 << 20);
        assert_eq!(huge_bytes_in("", &(0..usize::MAX)), 0);
    }

    #[test]
    fn this_functions_own_mapping_is_among_the_mappings() {
        let here = this_functions_own_mapping_is_among_the_mappings as *const () as usize;
        assert!(mappings().iter().any(|(range, name)| range.contains(&here) && name.starts_with('/')));
    }
}
