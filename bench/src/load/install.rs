//! Installation alone: finished machine code from a buffer to where it runs.
//!
//! Against what a compiler does without packs: a mapping for each program, filled and then made executable. Both in
//! turns, and nothing is freed inside of what is timed. Then the allocator among thousands of live programs:
//! places taken and given back at random, so that it works with holes of all sizes.

use crate::Result;
use crate::pack::layout::install as place;
use crate::page::Page;
use crate::process::{Passed, clocked};
use crate::programs::split_mix;
use serde_json::{Value, json};
use skep_text::{Arena, Config, Text};

/// Bytes of the program that is installed.
pub(super) const CODE: usize = 400;
/// Programs in one turn: neither side frees within it.
const TURN: usize = 256;

/// Measures installation: nanoseconds for each program, in the best of `turns` turns.
pub(super) fn install(config: Config, turns: usize) -> Result<Value> {
    let arena = Arena::new(config)?;
    let code = code(CODE);
    // To install a program, to free it, and both with a mapping of its own.
    let mut best = [f64::INFINITY; 4];
    for _ in 0..turns {
        let (texts, installed) =
            clocked(|| (0..TURN).map(|_| place(&arena, &code)).collect::<Result<Vec<_>>>());
        let texts = texts?;
        let ((), freed) = clocked(|| drop(texts));
        let (pages, mapped) = clocked(|| (0..TURN).map(|_| Page::new(&code, 0)).collect::<Result<Vec<_>>>());
        let pages = pages?;
        let ((), unmapped) = clocked(|| drop(pages));
        for (best, passed) in best.iter_mut().zip([installed, freed, mapped, unmapped]) {
            *best = best.min(passed.wall * 1e9 / TURN as f64);
        }
    }
    let [ns, free_ns, page_ns, page_free_ns] = best;
    Ok(json!({
        "bytes": CODE, "backing": arena.occupancy().backing.name(),
        // From the request for a place to code that can be run; by a mapping of its own: map, copy, make executable.
        "ns": ns, "page_ns": page_ns,
        // To free it again, by the calling thread; to unmap the mapping.
        "free_ns": free_ns, "page_free_ns": page_free_ns,
    }))
}

/// Measures the allocator among `programs` live programs, of which each turn replaces a few.
pub(super) fn crowded(programs: usize, turns: usize) -> Result<Value> {
    const FEW: usize = 64;
    let arena = Arena::new(Config::new())?;
    let code = code(LONGEST);
    let mut random = 1;
    let mut live =
        (0..programs).map(|_| place(&arena, &code[..size(&mut random)])).collect::<Result<Vec<Text>>>()?;
    let (mut allocate_ns, mut free_ns, mut background) = (f64::INFINITY, f64::INFINITY, 0.0);
    let per_program = |passed: Passed| passed.wall * 1e9 / FEW as f64;
    for _ in 0..turns {
        let freed: Vec<Text> =
            (0..FEW).map(|_| live.swap_remove(split_mix(&mut random) as usize % live.len())).collect();
        let ((), passed) = clocked(|| drop(freed));
        free_ns = free_ns.min(per_program(passed));
        background += passed.background;
        let sizes: Vec<usize> = (0..FEW).map(|_| size(&mut random)).collect();
        // What was freed is given back before, which the keeper does within a millisecond; a loader that finds no room
        // in the meantime does it for itself, and that is not what is measured here.
        let (flushed, passed) = clocked(|| arena.flush());
        flushed?;
        background += passed.background + passed.thread;
        let mut drafts = Vec::with_capacity(FEW);
        let (allocated, passed) = clocked(|| {
            sizes.iter().try_for_each(|&size| {
                drafts.push(arena.draft(size)?);
                Ok::<_, skep_text::Error>(())
            })
        });
        allocated?;
        allocate_ns = allocate_ns.min(per_program(passed));
        let (finished, passed) = clocked(|| {
            drafts.drain(..).try_for_each(|mut draft| {
                let len = draft.len();
                draft.bytes_mut().copy_from_slice(&code[..len]);
                live.push(draft.finalize()?);
                Ok::<_, skep_text::Error>(())
            })
        });
        finished?;
        background += passed.background;
    }
    // What still waits is work of this benchmark, too.
    let (flushed, passed) = clocked(|| arena.flush());
    flushed?;
    background += passed.background;
    let occupancy = arena.occupancy();
    let bytes: usize = live.iter().map(Text::len).sum();
    Ok(json!({
        // Live programs, and how many were replaced before.
        "programs": programs, "average_bytes": bytes as f64 / programs as f64, "replaced": turns * FEW,
        // For a place (a draft), and what the calling thread takes to free a program; best turn.
        "allocate_ns": allocate_ns, "free_ns": free_ns,
        // Processor time that other threads spend for each program freed, average.
        "free_background_ns": background * 1e9 / (turns * FEW) as f64,
        // Bytes of code for each byte of memory mapped for code, and of the chunks that hold it, at the end.
        "utilisation_percent": 100.0 * bytes as f64 / occupancy.mapped_bytes as f64,
        "chunk_utilisation_percent": 100.0 * bytes as f64 / occupancy.used_bytes as f64,
    }))
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
