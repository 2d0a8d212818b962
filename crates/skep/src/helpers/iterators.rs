//! Iterators over numbers: `bpf_iter_num_new`, `bpf_iter_num_next` and `bpf_iter_num_destroy`.
//!
//! An iterator is eight bytes of the program's stack. The verifier lets only these functions access them. If the
//! verifier were wrong, forged bytes could choose numbers and their count, but never an address: the element of an
//! iterator is always the iterator's own first half.
//!
//! ```text
//!   0  number i32 | 4  left u32
//! ```

use skep_abi::{MAX_LOOPS, RunEnv};

/// The structure in the program's stack.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    /// The number returned last; before the first one, the number below it.
    number: i32,
    /// How many numbers are left.
    left: u32,
}

const EINVAL: i64 = -22;
const E2BIG: i64 = -7;

impl Numbers {
    const NONE: Self = Self { number: 0, left: 0 };

    /// The numbers from `start` to below `end`.
    fn new(start: i32, end: i32) -> Result<Self, i64> {
        // The difference of two 32-bit numbers has 33 bits.
        let left = i64::from(end) - i64::from(start);
        match u32::try_from(left) {
            Err(_) => Err(if left < 0 { EINVAL } else { E2BIG }),
            Ok(left) if left > MAX_LOOPS => Err(E2BIG),
            Ok(left) => Ok(Self { number: start.wrapping_sub(1), left }),
        }
    }

    /// Advances to the next number; returns whether there is one.
    fn advance(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        *self = Self { number: self.number.wrapping_add(1), left };
        true
    }
}

fn at(address: u64) -> *mut Numbers {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// `int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end)`. On failure the iterator is empty.
#[inline]
pub(super) unsafe fn num_new(it: u64, start: u64, end: u64, _: *mut RunEnv) -> u64 {
    let made = Numbers::new(start as i32, end as i32);
    // SAFETY: the verifier proved that `it` is the address of eight bytes of the program's stack, aligned to eight.
    unsafe { at(it).write(made.unwrap_or(Numbers::NONE)) };
    made.err().unwrap_or(0) as u64
}

/// `int *bpf_iter_num_next(struct bpf_iter_num *it)`.
#[inline]
pub(super) unsafe fn num_next(it: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above; `num_new` wrote them, and no reference to them exists while the program waits for this
    // call.
    let found = unsafe { (*at(it)).advance() };
    // The number is at the start of the iterator.
    if found { it } else { 0 }
}

/// `void bpf_iter_num_destroy(struct bpf_iter_num *it)`.
#[inline]
pub(super) unsafe fn num_destroy(it: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as for `num_next`.
    unsafe { at(it).write(Numbers::NONE) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(start: i32, end: i32) -> Result<Vec<i32>, i64> {
        let mut numbers = Numbers::new(start, end)?;
        let mut all = Vec::new();
        while numbers.advance() {
            all.push(numbers.number);
        }
        assert!(!numbers.advance(), "the end is the end");
        Ok(all)
    }

    #[test]
    fn numbers_ascend_from_the_start_to_below_the_end() {
        for (start, end) in [(0, 0), (3, 3), (0, 1), (-2, 3), (5, 9)] {
            assert_eq!(all(start, end), Ok((start..end).collect()));
        }
        assert_eq!(all(i32::MIN, i32::MIN + 2), Ok(vec![i32::MIN, i32::MIN + 1]));
        assert_eq!(all(i32::MAX - 1, i32::MAX), Ok(vec![i32::MAX - 1]));
    }

    #[test]
    fn too_many_numbers_and_ends_before_the_start_are_errors() {
        let most = MAX_LOOPS as i32;
        assert_eq!(Numbers::new(0, most).map(|numbers| numbers.left), Ok(MAX_LOOPS));
        assert_eq!(Numbers::new(-1, most), Err(E2BIG));
        assert_eq!(Numbers::new(i32::MIN, i32::MAX), Err(E2BIG));
        assert_eq!(Numbers::new(1, 0), Err(EINVAL));
        assert_eq!(Numbers::new(i32::MAX, i32::MIN), Err(EINVAL));
    }

    #[test]
    fn forged_bytes_give_only_the_iterators_own_address() {
        let mut env = RunEnv::default();
        for number in [0, 1, -1, i32::MIN, i32::MAX] {
            for left in [0, 1, u32::MAX] {
                let mut room = [Numbers { number, left }; 3];
                let it = (&raw mut room[1]).expose_provenance() as u64;
                // SAFETY: the iterator has the right size and alignment.
                let element = unsafe { num_next(it, &raw mut env) };
                assert_eq!(element, if left == 0 { 0 } else { it });
                assert_eq!((room[0], room[2]), (Numbers { number, left }, Numbers { number, left }));
            }
        }
    }
}
