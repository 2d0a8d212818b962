//! Iterators over the bits that are set in memory: `bpf_iter_bits_new`, `bpf_iter_bits_next` and
//! `bpf_iter_bits_destroy`.
//!
//! An iterator is sixteen bytes of the program's stack. It goes over a copy, since the memory may change or end
//! before it.
//! One word is copied into the iterator, more into a list of the thread. If the verifier were wrong, forged bytes could
//! choose bits of this thread's copies, but never an address.
//!
//! ```text
//!   0  the word, or the place of the copy in the list u64 | 8  number of bits u32 | 12  bit i32
//! ```

use super::errno::{E2BIG, EINVAL};
use skep_abi::RunEnv;
use std::cell::RefCell;

/// The most words of one iterator, as in Linux.
const MOST: u32 = 511;
const BITS: u32 = u64::BITS;

thread_local! {
    /// The copies of live iterators of this thread, and free places. A run stays on its thread.
    static COPIES: RefCell<Vec<Option<Box<[u64]>>>> = const { RefCell::new(Vec::new()) };
}

/// The structure in the program's stack.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    /// If there is one word, it; otherwise the place of the copy.
    words: u64,
    /// How many bits there are.
    count: u32,
    /// The bit returned last; before the first one, -1.
    bit: i32,
}

impl Bits {
    const NONE: Self = Self { words: 0, count: 0, bit: -1 };

    fn new(words: &[u64]) -> Self {
        let count = words.len() as u32 * BITS;
        let words = match words {
            [word] => *word,
            words => COPIES.with_borrow_mut(|copies| {
                let free = copies.iter().position(Option::is_none).unwrap_or_else(|| {
                    copies.push(None);
                    copies.len() - 1
                });
                copies[free] = Some(words.into());
                free as u64
            }),
        };
        Self { words, count, bit: -1 }
    }

    /// Advances to the next bit that is set; returns whether there is one.
    fn advance(&mut self) -> bool {
        // At the end it is as large as it can be, and stays so.
        let from = self.bit.saturating_add(1).max(0).cast_unsigned();
        let found = match self.count {
            0 => None,
            BITS => next_bit(&[self.words], from),
            _ => COPIES.with_borrow(|copies| {
                let copy = copies.get(usize::try_from(self.words).ok()?)?.as_deref()?;
                next_bit(copy, from)
            }),
        };
        self.bit = found.map_or(i32::MAX, u32::cast_signed);
        found.is_some()
    }

    fn end(self) {
        if self.count > BITS {
            COPIES.with_borrow_mut(|copies| {
                let place = usize::try_from(self.words).ok().and_then(|place| copies.get_mut(place));
                if let Some(copy) = place {
                    *copy = None;
                }
            });
        }
    }
}

/// The first bit that is set at or after `from`, counted from the lowest bit of the first word.
fn next_bit(words: &[u64], from: u32) -> Option<u32> {
    let first = from / BITS;
    (first..).zip(words.get(first as usize..)?).find_map(|(at, word)| {
        let left = if at == first { word & (u64::MAX << (from % BITS)) } else { *word };
        (left != 0).then(|| at * BITS + left.trailing_zeros())
    })
}

fn at(address: u64) -> *mut Bits {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// `int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *words, u32 count)`. On failure the iterator is empty.
#[inline]
pub(super) unsafe fn new(it: u64, words: u64, count: u64, _: *mut RunEnv) -> u64 {
    let count = count as u32;
    let made = match count {
        _ if words == 0 || count == 0 => Err(EINVAL),
        _ if count > MOST => Err(E2BIG),
        _ => {
            let from = std::ptr::with_exposed_provenance::<u64>(words as usize);
            // SAFETY: the verifier proved that so many words are readable there, at any address.
            let copy: Vec<_> =
                (0..count as usize).map(|word| unsafe { from.add(word).read_unaligned() }).collect();
            Ok(Bits::new(&copy))
        }
    };
    // SAFETY: the verifier proved that `it` is the address of sixteen bytes of the program's stack, aligned to eight.
    unsafe { at(it).write(made.unwrap_or(Bits::NONE)) };
    made.err().unwrap_or(0)
}

/// `int *bpf_iter_bits_next(struct bpf_iter_bits *it)`.
#[inline]
pub(super) unsafe fn next(it: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above; `new` wrote them, and no reference to them exists while the program waits for this call.
    let found = unsafe { (*at(it)).advance() };
    if found { it + std::mem::offset_of!(Bits, bit) as u64 } else { 0 }
}

/// `void bpf_iter_bits_destroy(struct bpf_iter_bits *it)`.
#[inline]
pub(super) unsafe fn destroy(it: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as for `next`.
    unsafe {
        at(it).read().end();
        at(it).write(Bits::NONE);
    }
    0
}

/// What stands for the copy that an iterator has in this thread's list: no address. 0 if it has none.
///
/// # Safety
///
/// `it` is the address of an iterator that [`new`] made.
pub(super) unsafe fn copy(it: u64) -> u64 {
    // SAFETY: the caller's promise.
    let bits = unsafe { at(it).read() };
    if bits.count > BITS { !bits.words } else { 0 }
}

/// Ends the iterator of a copy.
///
/// # Safety
///
/// None; the signature is that of [`Release`](crate::ending::Release).
pub(super) unsafe fn give_up(copy: u64, _: u32) {
    Bits { words: !copy, count: BITS + 1, bit: 0 }.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(words: &[u64]) -> Vec<i32> {
        let mut bits = Bits::new(words);
        let mut all = Vec::new();
        while bits.advance() {
            all.push(bits.bit);
        }
        assert!(!bits.advance(), "the end is the end");
        bits.end();
        all
    }

    #[test]
    fn the_copy_of_an_iterator_that_is_given_up_is_freed() {
        let live = || COPIES.with_borrow(|copies| copies.iter().flatten().count());
        let before = live();
        for words in [vec![7], vec![7, 8], vec![1; 511]] {
            let mut it = Bits::NONE;
            let (it, count) = ((&raw mut it).expose_provenance() as u64, words.len() as u64);
            let mut env = RunEnv::default();
            // SAFETY: an iterator, and words that may be read.
            unsafe {
                new(it, words.as_ptr().expose_provenance() as u64, count, &raw mut env);
                assert_eq!((copy(it) != 0, live()), (count > 1, before + usize::from(count > 1)));
                if count > 1 {
                    give_up(copy(it), 0);
                }
            }
            assert_eq!(live(), before);
        }
    }

    #[test]
    fn the_bits_that_are_set_ascend() {
        let mut random = 1u64;
        for count in [1, 2, 3, 64, 511] {
            for density in 0..4 {
                let words: Vec<u64> = (0..count)
                    .map(|_| {
                        (0..density).fold(u64::MAX, |word, _| {
                            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                            word & random.rotate_left(17)
                        })
                    })
                    .collect();
                let set = |bit: &i32| words[*bit as usize / 64] >> (bit % 64) & 1 == 1;
                let expected: Vec<i32> = (0..64 * count).filter(set).collect();
                assert_eq!(all(&words), expected, "{count} words");
            }
        }
        assert!(all(&[0]).is_empty());
        assert_eq!(all(&[0, 0, 1 << 63]), [191]);
    }

    #[test]
    fn copies_end_with_their_iterators() {
        let live = || COPIES.with_borrow(|copies| copies.iter().flatten().count());
        let (one, two) = (Bits::new(&[1, 2]), Bits::new(&[3, 4, 5]));
        assert_eq!((live(), one == two), (2, false));
        one.end();
        let three = Bits::new(&[6; 511]);
        assert_eq!((live(), three.words), (2, one.words), "the free place is taken again");
        two.end();
        three.end();
        assert_eq!(live(), 0);
    }

    #[test]
    fn forged_bytes_give_only_the_iterators_own_address() {
        let mut env = RunEnv::default();
        for words in [0, 1, u64::MAX] {
            for count in [0, 1, 64, 65, u32::MAX] {
                for bit in [-1, 0, 63, i32::MIN, i32::MAX] {
                    let mut forged = Bits { words, count, bit };
                    let it = (&raw mut forged).expose_provenance() as u64;
                    // SAFETY: the iterator has the right size and alignment.
                    let element = unsafe { next(it, &raw mut env) };
                    assert!([0, it + 12].contains(&element), "{words} {count} {bit}");
                    // SAFETY: as above.
                    unsafe { destroy(it, &raw mut env) };
                    assert_eq!(forged, Bits::NONE);
                }
            }
        }
    }
}
