//! Sets of the bytes of a frame's stack, a bit for each.

/// A set of stack bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ByteSet([u64; 8]);

impl ByteSet {
    pub(crate) const EMPTY: Self = Self([0; 8]);

    /// The words and masks that `start..end` subsumes.
    fn each(start: u32, end: u32, mut visit: impl FnMut(usize, u64)) {
        let mut at = start;
        while at < end {
            let word = (at / 64) as usize;
            let stop = end.min((at / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (stop - at))) << (at % 64);
            visit(word, mask);
            at = stop;
        }
    }

    pub(crate) fn insert(&mut self, start: u32, end: u32) {
        Self::each(start, end, |word, mask| self.0[word] |= mask);
    }

    pub(crate) fn remove(&mut self, start: u32, end: u32) {
        Self::each(start, end, |word, mask| self.0[word] &= !mask);
    }

    pub(crate) fn has_all(&self, start: u32, end: u32) -> bool {
        let mut all = true;
        Self::each(start, end, |word, mask| all &= self.0[word] & mask == mask);
        all
    }

    pub(crate) fn has_any(&self, start: u32, end: u32) -> bool {
        let mut any = false;
        Self::each(start, end, |word, mask| any |= self.0[word] & mask != 0);
        any
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    pub(crate) fn and_not(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The eight bytes from `8 * index`, one bit each.
    pub(crate) fn byte(&self, index: usize) -> u8 {
        (self.0[index / 8] >> (8 * (index % 8))) as u8
    }

    /// Its bytes in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(at as u32 * 64 + bit)
            })
        })
    }

    /// The units of 4 bytes that it has a byte of.
    pub(crate) fn units(&self) -> u128 {
        // Four bits or-ed into one, then sixteen of these moved together.
        let squeeze = |bytes: u64| {
            let units = (bytes | bytes >> 1 | bytes >> 2 | bytes >> 3) & 0x1111_1111_1111_1111;
            let units = (units | units >> 3) & 0x0303_0303_0303_0303;
            let units = (units | units >> 6) & 0x000f_000f_000f_000f;
            let units = (units | units >> 12) & 0x0000_00ff_0000_00ff;
            (units | units >> 24) & 0xffff
        };
        self.0.iter().rev().fold(0, |units, word| match word {
            0 => units << 16,
            _ => units << 16 | u128::from(squeeze(*word)),
        })
    }

    /// The bytes of 128 units of 4 bytes, at least those that are in `wanted`.
    pub(crate) fn from_units(units: u128, wanted: &Self) -> Self {
        // Sixteen bits spread out to every fourth of 64, then each made four.
        let spread = |units: u64| {
            let units = (units | units << 24) & 0x0000_00ff_0000_00ff;
            let units = (units | units << 12) & 0x000f_000f_000f_000f;
            let units = (units | units << 6) & 0x0303_0303_0303_0303;
            ((units | units << 3) & 0x1111_1111_1111_1111) * 0xf
        };
        // Most frames use little of their stack.
        Self(std::array::from_fn(|i| match wanted.0[i] {
            0 => 0,
            _ => spread((units >> (16 * i)) as u64 & 0xffff),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sets_cover_exactly_what_was_inserted() {
        for start in [0, 1, 60, 63, 64, 100, 448, 511] {
            for end in [start + 1, start + 8, start + 64, start + 65, start + 200] {
                let end = end.min(512);
                let mut set = ByteSet::EMPTY;
                set.insert(start, end);
                for at in 0..512 {
                    assert_eq!(set.has_all(at, at + 1), (start..end).contains(&at), "{start}..{end} at {at}");
                }
                assert!(set.iter().eq(start..end));
                assert!(set.has_all(start, end) && !set.has_any(0, start) && !set.has_any(end, 512));
                set.remove(start, end);
                assert!(set.is_empty());
            }
        }
        let units = ByteSet::from_units(1 << 127 | 0b10, &ByteSet([u64::MAX; 8]));
        for at in 0..512 {
            assert_eq!(units.has_all(at, at + 1), (4..8).contains(&at) || at >= 508);
        }
        for at in 0..512 {
            let mut set = ByteSet::EMPTY;
            set.insert(at, (at + 6).min(512));
            assert_eq!(
                set.units(),
                (at..(at + 6).min(512)).fold(0, |units, at| units | 1 << (at / 4)),
                "{at}"
            );
        }
    }
}
