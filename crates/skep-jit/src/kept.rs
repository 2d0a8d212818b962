//! Where the code of each slot is, packed.
//!
//! Nothing that runs asks for these places; dumps and profilers do, of a few programs. As numbers they take four bytes
//! for each slot, and eight for each piece of a program that passes rewrote; packed about one, and two:
//!
//! ```text
//!   offset of slot 0, 1, ..., end of the code | (offset, slot) of piece 0, 1, ...
//!   each as the difference to the one before it (skep_isa::varint)
//! ```
//!
//! A question unpacks all of them and keeps nothing.
//!
//! What would break it: a difference of more than 32 bits. Offsets and slots are numbers of 32 bits, and differences
//! wrap.

use skep_isa::varint;

/// Offsets and pieces as [`Compiled`](crate::Compiled) gives them.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Entries of the offsets: the slots and the end.
    offsets: u32,
    pieces: u32,
    bytes: Box<[u8]>,
}

impl Kept {
    /// Packs them.
    pub(crate) fn new(offsets: impl Iterator<Item = u32>, pieces: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut bytes = Vec::with_capacity(offsets.size_hint().0);
        let mut next = |before: u32, number: u32| {
            varint::write(&mut bytes, number.wrapping_sub(before).cast_signed());
            number
        };
        let mut counts = (0, 0);
        offsets.fold(0, |before, offset| {
            counts.0 += 1;
            next(before, offset)
        });
        pieces.fold((0, 0), |before, (offset, slot)| {
            counts.1 += 1;
            (next(before.0, offset), next(before.1, slot))
        });
        Self { offsets: counts.0, pieces: counts.1, bytes: bytes.into() }
    }

    pub(crate) fn offsets(&self) -> Vec<u32> {
        self.unpack().0
    }

    pub(crate) fn pieces(&self) -> Vec<(u32, u32)> {
        self.unpack().1
    }

    fn unpack(&self) -> (Vec<u32>, Vec<(u32, u32)>) {
        let mut rest = &*self.bytes;
        let mut next = |number: &mut u32| {
            *number = number.wrapping_add_signed(varint::read(&mut rest));
            *number
        };
        let mut offset = 0;
        let offsets = (0..self.offsets).map(|_| next(&mut offset)).collect();
        let (mut at, mut of) = (0, 0);
        let pieces = (0..self.pieces).map(|_| (next(&mut at), next(&mut of))).collect();
        (offsets, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(offsets: &[u32], pieces: &[(u32, u32)]) -> Kept {
        let kept = Kept::new(offsets.iter().copied(), pieces.iter().copied());
        assert_eq!((&*kept.offsets(), &*kept.pieces()), (offsets, pieces));
        kept
    }

    #[test]
    fn places_are_the_same_when_they_are_unpacked() {
        same(&[], &[]);
        same(&[0], &[]);
        same(&[0, 4, 4, 9, 7, 300, 20_000, 12], &[(0, 0), (4, 2), (9, 1), (9, 2), (40, 1)]);
        // Both ends of every length, up and down.
        let edges = (0..=32).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits]);
        let edges: Vec<u32> = edges.flat_map(|number| [0, number as u32, u32::MAX]).collect();
        let pieces: Vec<(u32, u32)> = edges.iter().copied().zip(edges.iter().rev().copied()).collect();
        same(&edges, &pieces);
    }

    #[test]
    fn places_of_common_code_take_a_byte_each() {
        let offsets: Vec<u32> = (0..1000).map(|slot| 3 * slot).collect();
        assert_eq!(same(&offsets, &[]).bytes.len(), 1000);
        let pieces: Vec<(u32, u32)> = (0..1000).map(|slot| (5 * slot, slot)).collect();
        assert_eq!(same(&[], &pieces).bytes.len(), 2000);
    }
}
