//! The layout of a hash table's parts.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use skep_mem::{Block, CacheOptions};

use crate::seed::Seed;
use crate::values::Values;
use crate::version::Version;

/// The longest key in bytes that fits a program's stack. Longer ones are copied to memory of the process's allocator.
pub(crate) const MAX_STACK_KEY: u32 = 512;

pub(super) const STACK_KEY_WORDS: usize = MAX_STACK_KEY as usize / 8;

/// The parameters of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    /// The number of virtual CPUs.
    pub(crate) cpus: u32,
    pub(crate) per_cpu: bool,
    /// Whether the table is LRU.
    pub(crate) lru: bool,
    /// Whether memory is taken by small pages as elements are added, rather than promised for all elements.
    pub(crate) on_demand: bool,
    /// Whether values own objects.
    pub(crate) owns: bool,
    /// What keys are hashed with.
    pub(crate) seed: Seed,
}

/// The link of removed elements that wait, before the values; only where these own objects.
pub(super) const LINK_BYTES: usize = size_of::<AtomicPtr<u8>>();

/// Offsets in an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementLayout {
    pub(super) key_size: usize,
    pub(super) values_at: usize,
    /// The mark that the element was used, in LRU tables.
    pub(super) mark_at: Option<usize>,
}

/// The head of a list and its writers' lock. All zeroes are an empty bucket.
#[repr(C)]
pub(super) struct Bucket {
    pub(super) head: AtomicPtr<u8>,
    pub(super) version: Version,
}

/// An element of the cache: the address of its `next` word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element(pub(super) NonNull<u8>);

impl Plan {
    /// The bytes that the table takes at its creation, and those that it needs for all of its elements.
    pub(crate) fn bytes(&self) -> Option<(usize, usize)> {
        let buckets = Block::reserved_for(self.bucket_bytes()?, 64).ok()?;
        let (_, _, options) = self.layout()?;
        Some((buckets, buckets.checked_add(options.max_bytes(self.cpus).ok()?)?))
    }

    pub(super) fn bucket_bytes(&self) -> Option<usize> {
        (self.max_entries as usize).checked_next_power_of_two()?.checked_mul(size_of::<Bucket>())
    }

    /// The layout, and options for a cache that has room for all elements.
    pub(super) fn layout(&self) -> Option<(ElementLayout, Values, CacheOptions)> {
        let key_words = (self.key_size as usize).div_ceil(8);
        let key_end = size_of::<AtomicPtr<u8>>() + key_words * 8;
        let mark_at = self.lru.then_some(key_end);
        let mark_end = key_end + mark_at.map_or(0, |_| size_of::<AtomicU64>());
        let values_at = mark_end + if self.owns { LINK_BYTES } else { 0 };
        let (values, size, align) = if self.per_cpu {
            // Whole cache lines: no CPU writes to another's.
            let cpu_stride = (self.value_size as usize).checked_next_multiple_of(64)?;
            let values = Values::per_cpu(self.value_size, self.cpus, cpu_stride);
            (values, cpu_stride.checked_mul(self.cpus as usize)?, 64)
        } else {
            (Values::shared(self.value_size), (self.value_size as usize).checked_next_multiple_of(8)?, 8)
        };
        let layout = ElementLayout { key_size: self.key_size as usize, values_at, mark_at };
        let options = CacheOptions::new(size.checked_add(values_at)?, self.max_entries as usize);
        Some((layout, values, options.align_at(align, values_at)))
    }

    /// With room for as many elements again that wait for readers, if the limit allows.
    pub(super) fn roomy(&self, options: CacheOptions) -> CacheOptions {
        let expected = if self.on_demand { 0 } else { self.max_entries as usize };
        options.capacity((self.max_entries as usize).saturating_mul(2)).spare_bytes(WAITING).expect(expected)
    }
}

/// Bytes that may wait for readers, even in the smallest table.
pub(crate) const WAITING: usize = 1 << 20;

impl Bucket {
    /// All elements. The caller holds the lock.
    pub(super) fn elements_locked(&self) -> impl Iterator<Item = Element> + Clone {
        std::iter::successors(self.first_locked(), |element| element.next_locked())
    }

    /// The first element. The caller holds the lock.
    pub(super) fn first_locked(&self) -> Option<Element> {
        NonNull::new(self.head.load(Ordering::Relaxed)).map(Element)
    }
}

impl Element {
    /// The link to the next element.
    #[inline(always)]
    pub(super) fn next<'a>(self) -> &'a AtomicPtr<u8> {
        // SAFETY: elements begin with this word; the cache's memory lives as long as the table, and its methods do
        // not leak these references.
        unsafe { self.0.cast().as_ref() }
    }

    /// The next element. The caller holds the lock.
    pub(super) fn next_locked(self) -> Option<Element> {
        NonNull::new(self.next().load(Ordering::Relaxed)).map(Element)
    }

    #[inline(always)]
    pub(super) fn key_word<'a>(self, index: usize) -> &'a AtomicU64 {
        // SAFETY: the key's words follow the link, and callers stay below their number; as for `next`.
        unsafe { self.0.cast::<AtomicU64>().add(1 + index).as_ref() }
    }

    #[inline(always)]
    pub(super) fn has_key(self, key: &[u64]) -> bool {
        // Relaxed: the link that led here has the Acquire.
        key.iter().enumerate().all(|(i, &word)| self.key_word(i).load(Ordering::Relaxed) == word)
    }
}
