//! The reserved range of addresses that contains all code of an arena.
//!
//! ```text
//!   |guard|  slot 0  |  slot 1  |  slot 2  | ...                        |guard|
//!         ^ a multiple of 2 MiB, as every slot                          at least a page each
//! ```
//!
//! The range is mapped PROT_NONE from the beginning, so no other mapping is ever placed in it. Packs are mapped over
//! it; when one is returned, PROT_NONE is mapped over it again. Branches reach from anywhere in the range to
//! anywhere else in it, and a stray jump into an empty part faults.
//!
//! A range near the host's own code lets generated code call the host directly. The gaps of the address space are
//! read from /proc/self/maps and tried nearest first, with MAP_FIXED_NOREPLACE, so that a concurrent mapping by
//! another thread makes the gap occupied and is not overwritten. The same holds for mappings that the list does not
//! show, such as an emulator's own in the same address space: if an address is taken, the next one in the gap is
//! tried.

use std::iter;
use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::param::page_size;

use crate::arch;
use crate::error::{Error, SystemCall};
use crate::procfs;
use crate::sizes::PACK_BYTES;
use crate::sys;

/// Reserve for the heap that `brk` grows upwards.
const HEAP_MARGIN: usize = 256 << 20;

/// Reserve for the main thread's stack, which grows downwards.
const STACK_MARGIN: usize = 64 << 20;

/// No range is placed below this: defective code tends to access addresses near null (sysctl vm.mmap_min_addr is 64
/// KiB by default).
const LOWEST: usize = 1 << 20;

/// How many addresses are tried in one gap.
const PLACES: usize = 64;

/// The end of the address space that every process has. A process with a larger one shows mappings beyond it.
const HIGHEST: usize = 1 << 47;

/// A reservation. Dropping it unmaps it, with everything mapped in it.
pub(crate) struct Reservation {
    /// The whole reservation, guards included.
    whole: Range<usize>,
    /// The slots: whole packs.
    slots: Range<usize>,
}

impl Reservation {
    /// Reserves `bytes`, a multiple of a pack, near an address if it is possible: half of that if not all fits there,
    /// and so on down to `least`. Without room, anywhere; on failure half of that, and so on down to one pack.
    pub(crate) fn new(bytes: usize, near: Option<usize>, least: usize) -> Result<Self, Error> {
        let place = |near| sizes(bytes, least).find_map(|size| reserve_near(near, size + 2 * page_size()));
        if let Some(whole) = near.and_then(place) {
            let slots = whole.start + page_size()..whole.end - page_size();
            return Ok(Self { whole, slots });
        }
        let mut result = Self::anywhere(bytes);
        for smaller in sizes(bytes, PACK_BYTES).skip(1) {
            match result {
                Err(error) if error.errno() == Some(Errno::NOMEM) => result = Self::anywhere(smaller),
                _ => break,
            }
        }
        result
    }

    pub(crate) fn slots(&self) -> &Range<usize> {
        &self.slots
    }

    fn anywhere(bytes: usize) -> Result<Self, Error> {
        // One extra pack, so that the reservation contains an aligned range with a page before it.
        let whole =
            reserve(SystemCall::ReserveRange, 0, bytes + PACK_BYTES + 2 * page_size(), MapFlags::empty())?;
        let start = (whole.start + page_size()).next_multiple_of(PACK_BYTES);
        Ok(Self { whole, slots: start..start + bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the arena drops it when no draft and no text is left. A failure (the limit on
        // mappings, if a merged neighbour must be split) leaks addresses.
        let _ = unsafe { sys::unmap(SystemCall::ReturnMemory, &self.whole) };
    }
}

/// `bytes`, which is a multiple of a pack, then half of the one before as long as that is at least `least`.
fn sizes(bytes: usize, least: usize) -> impl Iterator<Item = usize> {
    let half = |bytes: &usize| Some((bytes / 2).next_multiple_of(PACK_BYTES)).filter(|half| half < bytes);
    iter::successors(Some(bytes), half).take_while(move |size| *size == bytes || *size >= least)
}

/// Reserves `len` bytes, including two guard pages, within reach of direct calls from `near`.
fn reserve_near(near: usize, len: usize) -> Option<Range<usize>> {
    /// Other threads map memory too: after losing an address to one of them, the search is repeated this often.
    const ATTEMPTS: usize = 10;

    for _ in 0..ATTEMPTS {
        let mut taken = false;
        for start in places_near(near, len, &procfs::mappings()) {
            match reserve(SystemCall::ReserveRange, start, len, MapFlags::FIXED_NOREPLACE) {
                Ok(whole) => return Some(whole),
                Err(error) => taken |= error.errno() == Some(Errno::EXIST),
            }
        }
        if !taken {
            break;
        }
    }
    None
}

/// Reserves inaccessible addresses, which cost no memory.
pub(crate) fn reserve(
    call: SystemCall,
    start: usize,
    len: usize,
    flags: MapFlags,
) -> Result<Range<usize>, Error> {
    let flags = flags | MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses free addresses; with MAP_FIXED_NOREPLACE it refuses others.
    let at = unsafe { sys::map(call, start, len, ProtFlags::empty(), flags, None) }?;
    if start != 0 && flags.contains(MapFlags::FIXED_NOREPLACE) && at != start {
        // Linux before 4.17 treats the address as a mere hint.
        // SAFETY: the mapping made just above, which no other code has.
        let _ = unsafe { sys::unmap(SystemCall::ReturnMemory, &(at..at + len)) };
        return Err(Error::System { call, error: Errno::EXIST.into() });
    }
    Ok(at..at + len)
}

/// Makes `range` inaccessible again and releases its memory.
///
/// # Safety
///
/// The range is part of a reservation of the caller's, and nothing in it is used any more.
pub(crate) unsafe fn reserve_again(range: &Range<usize>) -> Result<(), Error> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: guaranteed by the caller.
    unsafe { sys::map(SystemCall::ReturnMemory, range.start, range.len(), ProtFlags::empty(), flags, None) }
        .map(drop)
}

/// Addresses where `len` bytes fit and the second page begins a pack, nearest to `near` first, at most [`PLACES`] in
/// each gap. Those below `near` precede those above, because heaps grow upwards.
fn places_near(near: usize, len: usize, mappings: &[(Range<usize>, String)]) -> Vec<usize> {
    let window = near.saturating_sub(arch::NEAR).max(LOWEST)..near.saturating_add(arch::NEAR);
    let mut below = Vec::new();
    let mut above = Vec::new();
    let mut gap_start = LOWEST;
    // There may be room behind the last mapping too, but not above a stack.
    let end = (HIGHEST..HIGHEST, String::new());
    let behind = mappings.last().filter(|(_, name)| name != "[stack]").map(|_| &end);
    for (index, (mapping, name)) in mappings.iter().chain(behind).enumerate() {
        let mut gap = gap_start..mapping.start;
        gap_start = mapping.end;
        if index > 0 && mappings[index - 1].1 == "[heap]" {
            gap.start = gap.start.saturating_add(HEAP_MARGIN);
        }
        if name == "[stack]" {
            gap.end = gap.end.saturating_sub(STACK_MARGIN);
        }
        let (low, high) = (gap.start.max(window.start), gap.end.min(window.end));
        let lowest =
            low.saturating_add(page_size()).checked_next_multiple_of(PACK_BYTES).unwrap_or(usize::MAX);
        let highest = high.saturating_sub(len - page_size()) / PACK_BYTES * PACK_BYTES;
        if lowest > highest {
            continue;
        }
        let more = ((highest - lowest) / PACK_BYTES).min(PLACES - 1) * PACK_BYTES;
        let of_gap = if highest < near { highest - more..=highest } else { lowest..=lowest + more };
        let places = of_gap.step_by(PACK_BYTES).map(|place| place - page_size());
        if highest < near { below.extend(places) } else { above.extend(places) }
    }
    below.reverse();
    below.extend(above);
    below
}

#[cfg(test)]
mod tests {
    use skep_testkit::Hidden;

    use super::*;
    use crate::tests::probe;

    fn mapping(start: usize, end: usize, name: &str) -> (Range<usize>, String) {
        (start..end, name.to_owned())
    }

    #[test]
    fn places_are_in_gaps_away_from_heap_and_stack() {
        const G: usize = 1 << 30;
        const M: usize = 1 << 20;
        let bytes = 16 * M;
        let maps = [
            mapping(400 * G, 400 * G + 4 * M, "/bin/host"),
            mapping(400 * G + 4 * M, 400 * G + 8 * M, "[heap]"),
            mapping(400 * G + 600 * M, 400 * G + 604 * M, "/lib/other"),
            mapping(401 * G, 401 * G + M, "[stack]"),
        ];
        let near = 400 * G + M;
        let len = bytes + 2 * page_size();
        let places = places_near(near, len, &maps);
        assert!(!places.is_empty());
        assert!(places[0] < 400 * G, "below comes first");
        for place in places {
            let range = place..place + len;
            assert!((place + page_size()).is_multiple_of(PACK_BYTES));
            assert!(near - arch::NEAR <= range.start && range.end <= near + arch::NEAR);
            for (mapping, name) in &maps {
                assert!(range.end <= mapping.start || mapping.end <= range.start, "{range:x?} {name}");
            }
            assert!(range.end <= 400 * G || range.start >= 400 * G + 8 * M + HEAP_MARGIN);
            assert!(range.end <= 401 * G - STACK_MARGIN);
        }
    }

    #[test]
    fn a_range_is_halved_down_to_what_its_user_needs() {
        let all = |bytes, least| sizes(bytes * PACK_BYTES, least * PACK_BYTES).map(|size| size / PACK_BYTES);
        assert_eq!(all(512, 64).collect::<Vec<_>>(), [512, 256, 128, 64]);
        assert_eq!(all(5, 1).collect::<Vec<_>>(), [5, 3, 2, 1]);
        assert_eq!(all(7, 7).collect::<Vec<_>>(), [7]);
        assert_eq!(all(3, 9).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn no_place_is_found_where_there_is_none() {
        let wall = [mapping(0, usize::MAX / 2, "/wall")];
        assert!(places_near(1 << 40, PACK_BYTES, &wall).is_empty());
        assert!(places_near(0, PACK_BYTES, &[]).is_empty());
        assert!(places_near(usize::MAX, PACK_BYTES, &wall).is_empty());
    }

    #[test]
    fn a_reservation_has_guards_on_both_sides_and_is_given_back() {
        let here = a_reservation_has_guards_on_both_sides_and_is_given_back as *const () as usize;
        for near in [None, Some(here)] {
            // Threads of other tests may take the addresses between the two lines under test, but not every time.
            let given_back = (0..20).any(|_| {
                let reservation = Reservation::new(8 * PACK_BYTES, near, PACK_BYTES).unwrap();
                let whole = reservation.whole.clone();
                let slots = reservation.slots().clone();
                assert_eq!(slots.len(), 8 * PACK_BYTES);
                assert!(slots.start.is_multiple_of(PACK_BYTES));
                assert!(whole.start + page_size() <= slots.start && slots.end + page_size() <= whole.end);
                // Room for two extra packs, because the addresses tried there begin at multiples of a pack.
                let room = || probe::there_is_room_near(here, 10 * PACK_BYTES, arch::NEAR);
                let what = "a reservation near the host's code";
                if near.is_some() && probe::shown(room(), Hidden::RoomNearCode, what) {
                    let furthest = slots.start.abs_diff(here).max(slots.end.abs_diff(here));
                    assert!(furthest <= arch::NEAR, "{slots:x?} is not near {here:x}");
                }
                let again =
                    |len| reserve(SystemCall::ReserveRange, whole.start, len, MapFlags::FIXED_NOREPLACE);
                assert_eq!(again(PACK_BYTES).unwrap_err().errno(), Some(Errno::EXIST));
                drop(reservation);
                let Ok(again) = again(whole.len()) else {
                    return false;
                };
                // SAFETY: mapped on the line before.
                unsafe { sys::unmap(SystemCall::ReturnMemory, &again) }.unwrap();
                true
            });
            assert!(given_back);
        }
    }
}
