//! A table as other processes see it.

use std::mem::offset_of;

use rustix::fd::BorrowedFd;

use super::Hash;
use super::element::Bucket;

/// Where a hash table is in the files that it shares, and how another process looks a key up.
///
/// # A look-up
///
/// ```text
///   bucket     | u64: the first element's address, or 0 | u64: version << 17 | who changes it, or 0 |
///   element    | u64: the next one's address, or 0 | key, its last word filled up with zeroes | ... | value(s) |
/// ```
///
/// 1. The key's hash chooses the bucket: [`seed`](Self::seed) says how.
/// 2. Load the bucket's second word (Acquire). If somebody changes the bucket, its lower 17 bits are not zero: again,
///    or let the host look.
/// 3. Load the first element's address (Acquire), compare the key word by word, load the next address (Acquire), until
///    the key or the end is found. Copy the value in whole aligned words.
/// 4. Pass an Acquire fence, and load the second word again. If it is what it was, the answer is right: no element on
///    the way was reused. Otherwise what was found may be anything: an address that is none of an element, or a list
///    without an end. So check each address, and the second word now and then on a long way.
///
/// This is what a thread of the host's does; the elements' order of reuse makes the last step sufficient, across
/// processes too, because it is made of the same atomic operations on the same memory. A process that stops anywhere on
/// the way holds up nobody.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SharedTable<'a> {
    /// The file with the buckets, 16 bytes each, from its start.
    pub buckets: BorrowedFd<'a>,
    /// How many buckets there are: a power of two.
    pub bucket_count: u64,
    /// The file with the elements.
    pub elements: BorrowedFd<'a>,
    /// Where they begin in the file: at a page boundary.
    pub offset: usize,
    /// The bytes in which all of them are.
    pub len: usize,
    /// The address that the byte at `offset` has in links. Elements are at multiples of 8.
    pub address: usize,
    /// `[a, b, c]`: for a key of one word `w`, `fold(fold(w ^ a, b), c)`, whose lower bits are the bucket's number,
    /// where `fold(x, y)` is the exclusive or of both halves of the product of 128 bits. Two words `v` and `w`:
    /// `fold(fold(v ^ a, w ^ b), c)`. More: `state` begins as `a`; for each pair, `state = rotate_left(state + fold(v
    /// ^ state, w ^ b), 23)`; a last single word makes it `fold(state ^ w, b)`; the hash is `fold(state, c)`.
    pub seed: [u64; 3],
    /// The offset of the value in an element.
    pub values_at: usize,
    /// Bytes from the values of one CPU to those of the next; 0 if all CPUs share them.
    pub cpu_stride: usize,
    /// How many CPUs have values of their own; 1 if all share them.
    pub cpus: u32,
}

impl Hash {
    /// Whether the table is in files.
    pub(crate) fn is_shared(&self) -> bool {
        self.buckets.file().is_some()
    }

    /// The files, from now on for readers alone.
    pub(crate) fn shared(&self) -> Option<SharedTable<'_>> {
        const { assert!(offset_of!(Bucket, head) == 0 && offset_of!(Bucket, version) == 8) };
        let buckets = self.buckets.file()?;
        let elements = self.elements.shared()?;
        self.buckets.refuse_writers();
        Some(SharedTable {
            buckets,
            bucket_count: self.mask + 1,
            elements: elements.file,
            offset: elements.offset,
            len: elements.len,
            address: elements.address,
            seed: self.seed.numbers(),
            values_at: self.layout.values_at,
            cpu_stride: self.values.cpu_stride(),
            cpus: self.values.copies(),
        })
    }
}
