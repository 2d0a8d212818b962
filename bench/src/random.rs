//! Random numbers that are the same in every run.

/// xorshift64* (Marsaglia 2003, Vigna 2016).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = if self.0 == 0 { 0x1234_5678_9abc_def1 } else { self.0 };
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`, which is far below 2^32.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (((self.next() >> 32) * end as u64) >> 32) as usize
    }

    /// Shuffles in place (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_every_item_and_moves_most() {
        let mut items: Vec<usize> = (0..1000).collect();
        Random(1).shuffle(&mut items);
        assert!(items.iter().enumerate().filter(|(at, item)| at == *item).count() < 20);
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(at, item)| at == *item));
    }
}
