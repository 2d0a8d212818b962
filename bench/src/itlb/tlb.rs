//! A two-level instruction TLB with least-recently-used replacement.
//!
//! ```text
//!   page ──> L1, fully associative ──miss──> L2, sets of a few ways ──miss──> walk of the page tables
//!              ^ filled by both                ^ filled by walks
//! ```
//!
//! Entries hold pages of either size. Real hardware replaces by approximations of LRU and may merge neighbouring pages
//! that are also neighbours in memory; neither is modelled. A page number must mean
//! one page: [`HUGE`] distinguishes 2 MiB pages from 4 KiB pages.

/// Set in the number of a 2 MiB page.
pub(crate) const HUGE: u64 = 1 << 63;

/// The shape of a TLB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Entries of the first level, fully associative.
    pub(crate) l1: usize,
    /// Entries of the second level.
    pub(crate) l2: usize,
    /// Ways of the second level.
    pub(crate) ways: usize,
}

/// A TLB, and what it has counted.
pub(crate) struct Tlb {
    l1: Recent,
    l2: Vec<Recent>,
    /// Accesses that the first level had not.
    pub(crate) misses: u64,
    /// Those that the second level had not either.
    pub(crate) walks: u64,
}

impl Tlb {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let sets = geometry.l2 / geometry.ways;
        Self {
            l1: Recent::new(geometry.l1),
            l2: (0..sets).map(|_| Recent::new(geometry.ways)).collect(),
            misses: 0,
            walks: 0,
        }
    }

    /// Fetches from the page.
    #[inline]
    pub(crate) fn fetch(&mut self, page: u64) {
        if self.l1.touch(page) {
            return;
        }
        self.misses += 1;
        let sets = self.l2.len() as u64;
        if !self.l2[((page & !HUGE) % sets) as usize].touch(page) {
            self.walks += 1;
        }
    }

    /// Forgets what was counted, and nothing else.
    pub(crate) fn reset_counts(&mut self) {
        (self.misses, self.walks) = (0, 0);
    }
}

/// The pages used last, the last one first.
struct Recent {
    pages: Vec<u64>,
    capacity: usize,
}

impl Recent {
    fn new(capacity: usize) -> Self {
        Self { pages: Vec::with_capacity(capacity), capacity }
    }

    /// Moves the page to the front; a new one replaces the least recently used. Returns whether it was there.
    #[inline]
    fn touch(&mut self, page: u64) -> bool {
        let found = self.pages.iter().position(|&known| known == page);
        match found {
            Some(at) => self.pages[..=at].rotate_right(1),
            None => {
                if self.pages.len() == self.capacity {
                    self.pages.pop();
                }
                self.pages.insert(0, page);
            }
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::HashMap;

    /// The same by definition: a page is there unless as many others of its set were used since.
    struct Naive {
        used: HashMap<u64, u64>,
        clock: u64,
        entries: usize,
    }

    impl Naive {
        fn touch(&mut self, page: u64) -> bool {
            self.clock += 1;
            let last = self.used.insert(page, self.clock);
            last.is_some_and(|last| {
                self.used.iter().filter(|&(&other, &at)| other != page && at > last).count() < self.entries
            })
        }
    }

    #[test]
    fn it_counts_as_the_definition_of_lru_does() {
        let geometry = Geometry { l1: 5, l2: 24, ways: 3 };
        let mut tlb = Tlb::new(geometry);
        let naive = |entries| Naive { used: HashMap::new(), clock: 0, entries };
        let mut l1 = naive(5);
        let mut l2: Vec<Naive> = (0..8).map(|_| naive(3)).collect();
        let (mut misses, mut walks) = (0, 0);
        let mut random = Random(7);
        for _ in 0..20_000 {
            // Mostly few pages, now and then many; some of them huge.
            let number = if random.below(4) > 0 { random.below(8) } else { random.below(60) } as u64;
            let page = if number % 7 == 3 { number | HUGE } else { number };
            tlb.fetch(page);
            if !l1.touch(page) {
                misses += 1;
                walks += u64::from(!l2[(number % 8) as usize].touch(page));
            }
            assert_eq!((tlb.misses, tlb.walks), (misses, walks));
        }
        assert!(walks > 1000 && misses > 2 * walks, "{misses} {walks}");
    }

    #[test]
    fn one_page_more_than_there_are_entries_called_in_turns_always_misses() {
        for (pages, expected) in [(64, 0), (65, 6500)] {
            let mut tlb = Tlb::new(Geometry { l1: 64, l2: 512, ways: 8 });
            (0..pages).for_each(|page| tlb.fetch(page));
            tlb.reset_counts();
            (0..100).flat_map(|_| 0..pages).for_each(|page| tlb.fetch(page));
            assert_eq!((tlb.misses, tlb.walks), (expected, 0));
        }
    }
}
