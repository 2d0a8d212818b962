//! The layouts: the same programs on a page each, and in packs.
//!
//! *A page each* is the layout of a JIT that calls mmap(2) for every program, writes, and makes it executable by
//! mprotect(2). The code begins at the start of the page. That costs more than translations: on a processor that
//! indexes its L1 instruction cache by the address within the page, all programs then compete for the same few sets. So
//! there is a second, fairer layout whose code begins at another cache line in each page (*coloured*): the difference
//! between packs and that one is due to translations alone.
//!
//! Invariant: the holder of a [`Placed`] may call its addresses. A program that refers to something outside its own
//! bytes would break it, so each is run once where it was placed and its result compared.

use super::programs::{Code, buffer};
use crate::page::Page;
use crate::{Result, arch};
use skep_text::{Arena, Config, PACK_BYTES, Text};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Cache lines of 64 bytes that coloured programs begin at, in turns: those of an L1 way of 4 KiB.
const COLOURS: usize = PAGE / 64;

/// The type of the programs: two arguments, and the environment of a run, which these programs do not read.
pub(crate) type Function = unsafe extern "C" fn(u64, u64, usize) -> u64;

/// Where programs are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each at the start of a page of its own.
    Page,
    /// Each on a page of its own, at another cache line in each.
    Coloured,
    /// In packs on pages of 4 KiB.
    Pack4k,
    /// In packs on huge pages.
    Pack2m,
}

impl Layout {
    pub(crate) const ALL: [Self; 4] = [Self::Page, Self::Coloured, Self::Pack4k, Self::Pack2m];
}

/// Programs in place.
pub(crate) struct Placed {
    /// Their addresses, in the order of the codes.
    pub(crate) addresses: Vec<usize>,
    /// Bytes of memory that they take: whole pages, or what the arena has memory for.
    pub(crate) memory: u64,
    /// Why packs that should be on huge pages are not.
    pub(crate) refused: Option<String>,
    /// What keeps the addresses valid.
    _held: Held,
}

enum Held {
    Pages { _pages: Vec<Page> },
    Packs { _texts: Vec<Text>, _arena: Arena },
}

/// Places the programs; `placement` puts something before them that moves all of them.
///
/// # Errors
///
/// What the system refuses; a program that returns something else in this place.
pub(crate) fn place(codes: &[Code], layout: Layout, placement: usize) -> Result<Placed> {
    let placed = match layout {
        Layout::Page => pages(codes, |_| 0)?,
        Layout::Coloured => pages(codes, |index| (index * 29 + placement * 7) % COLOURS * 64)?,
        Layout::Pack4k => packs(codes, placement, false)?,
        Layout::Pack2m => packs(codes, placement, true)?,
    };
    for (code, &address) in codes.iter().zip(&placed.addresses) {
        let mut memory = buffer();
        // SAFETY: the code was verified for a buffer of that size, calls nothing, and stays at this address as long as
        // `placed` lives.
        let result = unsafe { call(address, memory.as_mut_ptr() as u64) };
        if result != code.result {
            return Err(format!("a program returns {result:#x} in {layout:?}, not {:#x}", code.result).into());
        }
    }
    Ok(placed)
}

/// Calls the program at the address.
///
/// # Safety
///
/// A program of [`super::programs`] is there, and `memory` is the address of its buffer.
#[inline]
pub(crate) unsafe fn call(address: usize, memory: u64) -> u64 {
    // SAFETY: compiled programs have this type; a buffer and its length are what these were verified for.
    unsafe {
        let function = std::mem::transmute::<usize, Function>(address);
        function(memory, super::programs::BUFFER as u64, 0)
    }
}

/// A mapping of its own for each piece of code, which begins at `offset` of its index.
fn pages(codes: &[Code], offset: impl Fn(usize) -> usize) -> Result<Placed> {
    let mut addresses = Vec::with_capacity(codes.len());
    let mut pages = Vec::with_capacity(codes.len());
    for (index, code) in codes.iter().enumerate() {
        // A program that would cross the end of its page begins as far before it as it is long.
        let at = offset(index).min((PAGE - code.bytes.len()) / 64 * 64);
        let page = Page::new(&code.bytes, at)?;
        // SAFETY: the mapping was made executable just now.
        unsafe { arch::synchronize(page.address(), page.len) };
        addresses.push(page.address() + at);
        pages.push(page);
    }
    let memory = (codes.len() * PAGE) as u64;
    Ok(Placed { addresses, memory, refused: None, _held: Held::Pages { _pages: pages } })
}

fn packs(codes: &[Code], placement: usize, huge: bool) -> Result<Placed> {
    let arena = Arena::new(Config::new().huge(huge))?;
    let mut texts = Vec::with_capacity(codes.len() + 1);
    if placement > 0 {
        let first = vec![codes[0].bytes[0]; placement * 96];
        texts.push(install(&arena, &first)?);
    }
    let mut addresses = Vec::with_capacity(codes.len());
    for code in codes {
        let text = install(&arena, &code.bytes)?;
        addresses.push(text.address());
        texts.push(text);
    }
    let refused = if huge { promoted(&arena) } else { None };
    let occupancy = arena.occupancy();
    let memory = occupancy.mapped_bytes as u64;
    Ok(Placed { addresses, memory, refused, _held: Held::Packs { _texts: texts, _arena: arena } })
}

/// Makes all packs huge pages; returns why some are not. The kernel refuses pages that it is moving or has not yet
/// faulted in, so it is asked more than once.
fn promoted(arena: &Arena) -> Option<String> {
    let until = Instant::now() + Duration::from_millis(120);
    loop {
        let result = arena.promote();
        let occupancy = arena.occupancy();
        if occupancy.huge_bytes.is_some_and(|huge| huge >= occupancy.packs as u64 * PACK_BYTES as u64) {
            return None;
        }
        if Instant::now() >= until {
            let why = || occupancy.huge_refused.unwrap_or_else(|| "the kernel maps small pages".to_owned());
            return Some(result.map_or_else(|error| error.to_string(), |_| why()));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Copies code into the arena.
pub(crate) fn install(arena: &Arena, code: &[u8]) -> Result<Text> {
    let mut draft = arena.draft(code.len())?;
    draft.bytes_mut().copy_from_slice(code);
    Ok(draft.finalize()?)
}

#[cfg(test)]
mod tests {
    use super::super::programs::compile;
    use super::*;

    #[test]
    fn every_layout_holds_every_program_at_a_place_of_its_own() {
        let codes = compile(40, 150).unwrap();
        for layout in Layout::ALL {
            let placed = place(&codes, layout, 1).unwrap();
            let mut pages: Vec<usize> = placed.addresses.iter().map(|address| address / PAGE).collect();
            pages.sort_unstable();
            pages.dedup();
            match layout {
                Layout::Page | Layout::Coloured => assert_eq!(pages.len(), 40),
                Layout::Pack4k | Layout::Pack2m => assert!(pages.len() <= 3, "{} pages", pages.len()),
            }
            assert!(placed.memory > 0);
        }
    }

    #[test]
    fn coloured_programs_begin_at_many_cache_lines_and_uncoloured_at_one() {
        let codes = compile(64, 150).unwrap();
        let lines = |layout| {
            let placed = place(&codes, layout, 0).unwrap();
            let mut lines: Vec<usize> = placed.addresses.iter().map(|a| a % PAGE / 64).collect();
            lines.sort_unstable();
            lines.dedup();
            lines.len()
        };
        assert_eq!(lines(Layout::Page), 1);
        assert!(lines(Layout::Coloured) > 55);
    }
}
