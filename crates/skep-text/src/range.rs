//! The reserved range of addresses that all code of an arena lives in.
//!
//! ```text
//!   |guard|  slot 0  |  slot 1  |  slot 2  | ...                        |guard|
//!         ^ a multiple of 2 MiB, as every slot                          at least a page each
//! ```
//!
//! The range is mapped PROT_NONE from the beginning, so nothing else is ever placed in it; packs are mapped over
//! it and, when they are returned, PROT_NONE is mapped over them again. Branches from anywhere in it reach
//! everywhere in it, and a stray jump into an empty part faults.
//!
//! A range near the host's own code lets generated code call the host directly. The gaps of the address space are
//! read from /proc/self/maps and tried from the nearest on, with MAP_FIXED_NOREPLACE, so that a mapping made by
//! another thread in the meantime is an occupied gap and not a victim. So is one that the list does not show, as under
//! an emulator, whose own are in the same address space: where a place is taken the next one of the gap is tried.

use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::param::page_size;

use crate::error::{Error, Step};
use crate::{PACK_BYTES, arch, procfs, sys};

/// Room left for the heap that `brk` grows upwards.
const HEAP_MARGIN: usize = 256 << 20;

/// Room left for the main thread's stack, which grows downwards.
const STACK_MARGIN: usize = 64 << 20;

/// Below this nothing is placed: near null is where bugs point (sysctl vm.mmap_min_addr is 64 KiB by default).
const LOWEST: usize = 1 << 20;

/// Places of one gap that are tried.
const PLACES: usize = 64;

/// The end of what every process may use. Some may use more: there mappings of theirs are higher than this.
const HIGHEST: usize = 1 << 47;

/// A reservation; given back on drop, with whatever is mapped in it by then.
pub(crate) struct Reservation {
    /// All of it, with the guards.
    whole: Range<usize>,
    /// The slots: whole packs.
    slots: Range<usize>,
}

impl Reservation {
    /// Reserves `bytes`, a multiple of a pack, or half of that, and so on down to one pack.
    pub(crate) fn new(bytes: usize, near: Option<usize>) -> Result<Self, Error> {
        let mut bytes = bytes;
        loop {
            match Self::of(bytes, near) {
                Err(error) if error.errno() == Some(Errno::NOMEM) && bytes > PACK_BYTES => {
                    bytes = (bytes / 2).next_multiple_of(PACK_BYTES);
                }
                result => return result,
            }
        }
    }

    pub(crate) fn slots(&self) -> &Range<usize> {
        &self.slots
    }

    fn of(bytes: usize, near: Option<usize>) -> Result<Self, Error> {
        if let Some(whole) = near.and_then(|near| reserve_near(near, bytes + 2 * page_size())) {
            let slots = whole.start + page_size()..whole.end - page_size();
            return Ok(Self { whole, slots });
        }
        // One pack more than needed, so that a multiple of a pack's size lies in it with a page before it.
        let whole = reserve(Step::ReserveRange, 0, bytes + PACK_BYTES + 2 * page_size(), MapFlags::empty())?;
        let start = (whole.start + page_size()).next_multiple_of(PACK_BYTES);
        Ok(Self { whole, slots: start..start + bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the arena drops it when no draft and no text is left. A failure (the limit on
        // mappings, when a neighbour's must be split) leaks addresses.
        let _ = unsafe { sys::unmap(Step::ReturnMemory, &self.whole) };
    }
}

/// Reserves `len` bytes, two of its pages for guards, within a direct call of `near`.
fn reserve_near(near: usize, len: usize) -> Option<Range<usize>> {
    /// Other threads map memory too; a place that one of them took is looked for again so many times.
    const ATTEMPTS: usize = 10;

    for _ in 0..ATTEMPTS {
        let mut taken = false;
        for start in places_near(near, len, &procfs::mappings()) {
            match reserve(Step::ReserveRange, start, len, MapFlags::FIXED_NOREPLACE) {
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

/// Maps inaccessible addresses that cost no memory.
pub(crate) fn reserve(step: Step, start: usize, len: usize, flags: MapFlags) -> Result<Range<usize>, Error> {
    let flags = flags | MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses free addresses; with MAP_FIXED_NOREPLACE it refuses others.
    let at = unsafe { sys::map(step, start, len, ProtFlags::empty(), flags, None) }?;
    if start != 0 && flags.contains(MapFlags::FIXED_NOREPLACE) && at != start {
        // Linux before 4.17 takes the address for a mere hint.
        // SAFETY: the mapping made a moment ago, known to nobody.
        let _ = unsafe { sys::unmap(Step::ReturnMemory, &(at..at + len)) };
        return Err(Error::System { step, error: Errno::EXIST.into() });
    }
    Ok(at..at + len)
}

/// Makes `range` inaccessible again and lets go of the memory behind it.
///
/// # Safety
///
/// The range is part of a reservation of the caller's, and nothing in it is used any more.
pub(crate) unsafe fn reserve_again(range: &Range<usize>) -> Result<(), Error> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller's.
    unsafe { sys::map(Step::ReturnMemory, range.start, range.len(), ProtFlags::empty(), flags, None) }
        .map(drop)
}

/// Where `len` bytes fit whose second page begins a pack, nearest to `near` first, up to [`PLACES`] in each gap; what
/// lies below goes before what lies above, for heaps grow upwards.
fn places_near(near: usize, len: usize, mappings: &[(Range<usize>, String)]) -> Vec<usize> {
    let window = near.saturating_sub(arch::NEAR).max(LOWEST)..near.saturating_add(arch::NEAR);
    let mut below = Vec::new();
    let mut above = Vec::new();
    let mut gap_start = LOWEST;
    // Behind the last one there may be room, too, but not above a stack.
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
    fn places_are_inside_gaps_and_the_window_and_keep_clear_of_heap_and_stack() {
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
            // Other tests' threads may take the addresses between the two lines that matter, but not every time.
            let given_back = (0..20).any(|_| {
                let reservation = Reservation::new(8 * PACK_BYTES, near).unwrap();
                let whole = reservation.whole.clone();
                let slots = reservation.slots().clone();
                assert_eq!(slots.len(), 8 * PACK_BYTES);
                assert!(slots.start.is_multiple_of(PACK_BYTES));
                assert!(whole.start + page_size() <= slots.start && slots.end + page_size() <= whole.end);
                // Room for two packs more, because the places tried there begin at multiples of a pack.
                let room = || probe::there_is_room_near(here, 10 * PACK_BYTES, arch::NEAR);
                let what = "a reservation near the host's code";
                if near.is_some() && probe::shown(room(), Hidden::RoomNearCode, what) {
                    let furthest = slots.start.abs_diff(here).max(slots.end.abs_diff(here));
                    assert!(furthest <= arch::NEAR, "{slots:x?} is not near {here:x}");
                }
                let again = |len| reserve(Step::ReserveRange, whole.start, len, MapFlags::FIXED_NOREPLACE);
                assert_eq!(again(PACK_BYTES).unwrap_err().errno(), Some(Errno::EXIST));
                drop(reservation);
                let Ok(again) = again(whole.len()) else {
                    return false;
                };
                // SAFETY: mapped on the line before.
                unsafe { sys::unmap(Step::ReturnMemory, &again) }.unwrap();
                true
            });
            assert!(given_back);
        }
    }
}
