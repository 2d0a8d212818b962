//! Installation alone: finished machine code from a buffer to where it runs.
//!
//! Against what a compiler does without packs: a mapping for each program, filled and then made executable. Both in
//! turns, and nothing is freed inside of what is timed. Then the allocator among thousands of live programs:
//! places taken and given back at random, so that it works with holes of all sizes.

use super::clock::{Moment, Passed};
use crate::programs::split_mix;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use serde::Serialize;
use skep_text::{Arena, Config, Text};

/// Bytes of the program that is installed.
pub(super) const CODE: usize = 400;
/// Programs in one turn: neither side frees within it.
const TURN: usize = 256;

/// Installing one small program; nanoseconds.
#[derive(Debug, Serialize)]
pub(super) struct Install {
    /// Bytes of machine code.
    bytes: usize,
    /// How the arena got its memory.
    backing: String,
    /// From the request for a place to code that can be run, best turn.
    pub(super) ns: f64,
    /// The same by a mapping of its own: map, copy, make executable.
    page_ns: f64,
    /// To free it again, by the calling thread.
    free_ns: f64,
    /// To unmap the mapping of its own.
    page_free_ns: f64,
}

/// The allocator among many live programs.
#[derive(Debug, Serialize)]
pub(super) struct Crowded {
    /// Live programs.
    programs: usize,
    average_bytes: f64,
    /// Nanoseconds for a place (a draft), best turn.
    pub(super) allocate_ns: f64,
    /// Nanoseconds that the calling thread takes to free a program, best turn.
    pub(super) free_ns: f64,
    /// Processor time that other threads spend for each program freed, average, in nanoseconds.
    free_background_ns: f64,
    /// Bytes of code for each byte of memory mapped for code, in per cent, after all the replacing.
    pub(super) utilisation_percent: f64,
    /// Bytes of code for each byte of the chunks that hold it, in per cent.
    chunk_utilisation_percent: f64,
    /// How many programs were replaced before.
    replaced: usize,
}

/// Measures installation in so many turns.
pub(super) fn install(config: Config, turns: usize) -> Result<Install, String> {
    let arena = Arena::new(config).map_err(|error| error.to_string())?;
    let code = code(CODE);
    let (mut ns, mut page_ns) = (f64::INFINITY, f64::INFINITY);
    let (mut free_ns, mut page_free_ns) = (f64::INFINITY, f64::INFINITY);
    let per_program = |passed: Passed| passed.wall * 1e9 / TURN as f64;
    for _ in 0..turns {
        let start = Moment::now();
        let texts = (0..TURN).map(|_| place(&arena, &code)).collect::<Result<Vec<Text>, String>>()?;
        ns = ns.min(per_program(start.passed()));
        let start = Moment::now();
        drop(texts);
        free_ns = free_ns.min(per_program(start.passed()));

        let start = Moment::now();
        let pages = (0..TURN).map(|_| Page::new(&code)).collect::<Result<Vec<Page>, String>>()?;
        page_ns = page_ns.min(per_program(start.passed()));
        let start = Moment::now();
        drop(pages);
        page_free_ns = page_free_ns.min(per_program(start.passed()));
    }
    let backing = arena.occupancy().backing.name().to_owned();
    Ok(Install { bytes: CODE, backing, ns, page_ns, free_ns, page_free_ns })
}

/// Measures the allocator with so many live programs, replacing a few in each of so many turns.
pub(super) fn crowded(programs: usize, turns: usize) -> Result<Crowded, String> {
    const FEW: usize = 64;
    let arena = Arena::new(Config::new()).map_err(|error| error.to_string())?;
    let code = code(LONGEST);
    let mut random = 1;
    let mut live = (0..programs)
        .map(|_| place(&arena, &code[..size(&mut random)]))
        .collect::<Result<Vec<Text>, String>>()?;
    let (mut allocate_ns, mut free_ns, mut background) = (f64::INFINITY, f64::INFINITY, 0.0);
    let mut drafts = Vec::with_capacity(FEW);
    for _ in 0..turns {
        let freed: Vec<Text> =
            (0..FEW).map(|_| live.swap_remove(split_mix(&mut random) as usize % live.len())).collect();
        let start = Moment::now();
        drop(freed);
        let passed = start.passed();
        free_ns = free_ns.min(passed.wall * 1e9 / FEW as f64);
        background += passed.background;
        let sizes: Vec<usize> = (0..FEW).map(|_| size(&mut random)).collect();
        // What was freed is given back before, which the keeper does within a millisecond; a loader that finds no room
        // in the meantime does it for itself, and that is not what is measured here.
        let start = Moment::now();
        arena.flush().map_err(|error| error.to_string())?;
        let passed = start.passed();
        background += passed.background + passed.thread;
        let start = Moment::now();
        for &size in &sizes {
            drafts.push(arena.draft(size).map_err(|error| error.to_string())?);
        }
        let passed = start.passed();
        allocate_ns = allocate_ns.min(passed.wall * 1e9 / FEW as f64);
        let start = Moment::now();
        for mut draft in drafts.drain(..) {
            let len = draft.len();
            draft.bytes_mut().copy_from_slice(&code[..len]);
            live.push(draft.finalize().map_err(|error| error.to_string())?);
        }
        background += start.passed().background;
    }
    // What still waits is work of this benchmark, too.
    let start = Moment::now();
    arena.flush().map_err(|error| error.to_string())?;
    background += start.passed().background;
    let occupancy = arena.occupancy();
    let bytes: usize = live.iter().map(Text::len).sum();
    Ok(Crowded {
        programs,
        average_bytes: bytes as f64 / programs as f64,
        allocate_ns,
        free_ns,
        free_background_ns: background * 1e9 / (turns * FEW) as f64,
        utilisation_percent: 100.0 * bytes as f64 / occupancy.mapped_bytes as f64,
        chunk_utilisation_percent: 100.0 * bytes as f64 / occupancy.used_bytes as f64,
        replaced: turns * FEW,
    })
}

fn place(arena: &Arena, code: &[u8]) -> Result<Text, String> {
    let mut draft = arena.draft(code.len()).map_err(|error| error.to_string())?;
    draft.bytes_mut().copy_from_slice(code);
    draft.finalize().map_err(|error| error.to_string())
}

/// The longest program among many.
const LONGEST: usize = 8192;

/// A program's size in bytes: as many between 64 and 128 as between 128 and 256, and so on up to [`LONGEST`].
/// Small programs are many and large ones hold most of the code, as on hosts that run hundreds of them.
fn size(random: &mut u64) -> usize {
    let octave = 64 << (split_mix(random) % 7);
    octave + split_mix(random) as usize % octave
}

/// Machine code that is never run.
fn code(len: usize) -> Vec<u8> {
    let mut state = 2;
    (0..len).map(|_| split_mix(&mut state) as u8).collect()
}

/// A program in a mapping of its own.
struct Page {
    address: *mut core::ffi::c_void,
    len: usize,
}

impl Page {
    fn new(code: &[u8]) -> Result<Self, String> {
        let len = code.len().next_multiple_of(rustix::param::page_size());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) }
            .map_err(|error| format!("no page for a program: {error}"))?;
        let page = Self { address, len };
        // SAFETY: the mapping is as long as the code at least, writable, and nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), address.cast(), code.len()) };
        // SAFETY: the mapping is our own.
        unsafe { mprotect(address, len, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(|error| format!("no executable page for a program: {error}"))?;
        Ok(page)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and nothing refers to it any more.
        let _ = unsafe { munmap(self.address, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spread_over_all_octaves() {
        let mut random = 1;
        let sizes: Vec<usize> = (0..1000).map(|_| size(&mut random)).collect();
        for octave in (0..7).map(|octave| 64 << octave) {
            let here = sizes.iter().filter(|&size| (octave..2 * octave).contains(size)).count();
            assert!(here > 80, "{here} of {octave} bytes");
        }
        assert!(sizes.iter().all(|size| (64..LONGEST).contains(size)));
    }
}
