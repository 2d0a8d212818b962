//! CPU masks (`struct bpf_cpumask`): objects with a bit for each virtual CPU of the runtime.
//!
//! ```text
//!   0  count of owners u32 | 4  unused u32 | 8  words u64, bit 0 first
//! ```
//!
//! Programs have addresses of masks, but only calls touch their bytes. Several threads may work on one mask: each word
//! is read and written as a whole, and a call on several words is not atomic, as in Linux. Bits beyond the last CPU are
//! never set. How many CPUs there are is in the layout, so an object that is no mask has none.

use std::sync::atomic::{AtomicU64, Ordering};

use skep_abi::{SpecialField, SpecialKind};

use super::{Contents, Shape, layout_of};

/// Bytes before the words.
const START: u32 = 8;

/// A mask at an address.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    cpus: u32,
    words: &'a [AtomicU64],
}

impl<'a> Mask<'a> {
    /// What masks of that many CPUs are made of.
    pub fn shape(cpus: u32) -> Shape {
        let fields = vec![SpecialField { kind: SpecialKind::Refcount, offset: 0, size: 4 }];
        let bytes = START + 8 * cpus.div_ceil(u64::BITS);
        Shape { bytes, fields, per_cpu: false, contents: Contents::Mask(cpus) }
    }

    /// The mask at that address.
    ///
    /// # Safety
    ///
    /// `address` is that of an object, in use or freed in the current section.
    pub unsafe fn at(address: u64) -> Self {
        // SAFETY: by the caller's contract.
        let contents = unsafe { layout_of(address) }.shape().contents;
        let cpus = if let Contents::Mask(cpus) = contents { cpus } else { 0 };
        let first = std::ptr::with_exposed_provenance::<AtomicU64>(address as usize + START as usize);
        // SAFETY: an object of that shape has the words, aligned to 8, and they are only accessed atomically once the
        // object is made.
        let words = unsafe { std::slice::from_raw_parts(first, cpus.div_ceil(u64::BITS) as usize) };
        Self { cpus, words }
    }

    /// How many CPUs there are. Functions that find none return this number.
    pub fn cpus(self) -> u32 {
        self.cpus
    }

    /// Whether a CPU is set; `false` for one that does not exist.
    pub fn test(self, cpu: u32) -> bool {
        self.bit(cpu).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Sets a CPU, if it exists; returns whether it was set before.
    pub fn set(self, cpu: u32) -> bool {
        // AcqRel: programs hand work over by a bit; pairs with the same of other threads.
        self.bit(cpu).is_some_and(|(word, bit)| word.fetch_or(bit, Ordering::AcqRel) & bit != 0)
    }

    /// Clears a CPU, if it exists; returns whether it was set before.
    pub fn clear(self, cpu: u32) -> bool {
        // AcqRel: as above.
        self.bit(cpu).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::AcqRel) & bit != 0)
    }

    /// Sets each word to what `value` gives, of all possible bits and the word's number.
    pub fn fill(self, value: impl Fn(u64, usize) -> u64) {
        for (at, word) in self.words.iter().enumerate() {
            let possible = self.possible(at);
            // Relaxed: calls on whole masks order nothing.
            word.store(value(possible, at) & possible, Ordering::Relaxed);
        }
    }

    /// The word of that number; 0 if there is none.
    pub fn word(self, at: usize) -> u64 {
        // Relaxed: as above.
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The first CPU from `start` on whose bit is set in what `value` gives for each word, by its number.
    pub fn next(self, start: u32, value: impl Fn(usize) -> u64) -> Option<u32> {
        let mut skipped = !0 << (start % u64::BITS);
        for at in (start / u64::BITS) as usize..self.words.len() {
            let found = value(at) & skipped & self.possible(at);
            if found != 0 {
                return Some(at as u32 * u64::BITS + found.trailing_zeros());
            }
            skipped = !0;
        }
        None
    }

    /// Whether `holds` is true of each word, of all possible bits and the word's number.
    pub fn all(self, holds: impl Fn(u64, usize) -> bool) -> bool {
        (0..self.words.len()).all(|at| holds(self.possible(at), at))
    }

    /// How many CPUs are set.
    pub fn weight(self) -> u32 {
        (0..self.words.len()).map(|at| self.word(at).count_ones()).sum()
    }

    fn bit(self, cpu: u32) -> Option<(&'a AtomicU64, u64)> {
        let word = self.words.get((cpu / u64::BITS) as usize).filter(|_| cpu < self.cpus)?;
        Some((word, 1 << (cpu % u64::BITS)))
    }

    /// The bits of that word that are CPUs.
    fn possible(self, at: usize) -> u64 {
        match self.cpus - at as u32 * u64::BITS {
            left @ 1..u64::BITS => (1 << left) - 1,
            _ => !0,
        }
    }
}
