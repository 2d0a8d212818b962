//! Where everything of a cache is: one region.
//!
//! ```text
//!   | virtual CPUs | batches | slabs | slab 0: object, object, ... | slab 1: ... |   slabs are whole pages
//!                                          carved one after the other ──>
//! ```
//!
//! A *slab* is as many objects as a *batch* names, so sealed batches are never more than slabs, and there is a batch for
//! every one of them from the start: keeping the books of what waits cannot fail.

use std::ptr::NonNull;

use crate::cpu::Cpu;
use crate::object::{HEADER, List};
use crate::region::{Region, page};
use crate::stack::Links;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::{CacheOptions, Error};

/// Some objects, as many as in a slab, that are free and go together.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub(crate) struct Batch {
    pub(crate) head: AtomicPtr<u8>,
    /// A cookie after the last of them was freed.
    pub(crate) cookie: AtomicU64,
    /// When the first of them was made.
    pub(crate) oldest: AtomicU64,
    /// In stacks and queues: the number of the next batch + 1.
    pub(crate) link: AtomicU32,
    unused: u32,
}

/// What is known of a slab.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub(crate) struct Slab {
    /// Objects that the keeper collects. The keeper's.
    pub(crate) free: List,
    /// When it had all of them: a cookie.
    pub(crate) cookie: AtomicU64,
    pub(crate) link: AtomicU32,
    unused: u32,
}

/// Sizes and places, computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes from one object to the next.
    pub(crate) stride: usize,
    /// Where the first object is in its slab.
    pub(crate) first: usize,
    pub(crate) align: usize,
    /// Objects in a slab, and in a batch.
    pub(crate) per_slab: usize,
    pub(crate) slab_bytes: usize,
    pub(crate) slabs: usize,
    pub(crate) batches: usize,
    /// Records of virtual CPUs, with one for those who have none.
    pub(crate) cpus: usize,
    batches_at: usize,
    slabs_at: usize,
    objects_at: usize,
    total: usize,
    pub(crate) capacity: usize,
    pub(crate) limit: usize,
}

/// The region, and who is where in it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) region: Region,
    pub(crate) shape: Shape,
}

/// Bytes of slabs of small objects: whole pages, and enough objects that what is done once for each batch costs little.
const SLAB: usize = if cfg!(loom) { 32 } else { 4096 };

/// How many batches each virtual CPU may hold back that no other can use.
pub(crate) const HELD_BACK: usize = 4;

impl Shape {
    pub(crate) fn of(options: &CacheOptions, cpus: u32) -> Result<Self, Error> {
        let &CacheOptions { size, align, offset, capacity, spare, limit, .. } = options;
        if size == 0 || capacity == 0 {
            return Err(Error::Empty { capacity, size });
        }
        if !align.is_power_of_two() || align > 4096 {
            return Err(Error::Align { align });
        }
        let too_large = Error::TooLarge { count: capacity, size };
        let align = align.max(HEADER);
        if !offset.is_multiple_of(HEADER) {
            return Err(Error::Offset { offset });
        }
        // The header is before the object, and the object where its `offset` is aligned: at least a header in.
        let first = match (align - offset % align) % align {
            0 => align,
            first => first,
        };
        let end = size.checked_next_multiple_of(HEADER).and_then(|size| size.checked_add(first));
        let stride = match end.ok_or(too_large)? {
            // Objects follow each other with their headers; gaps only where alignment wants them.
            end if first == HEADER => end.checked_next_multiple_of(align).ok_or(too_large)?,
            end => (end - (first - HEADER)).checked_next_multiple_of(align).ok_or(too_large)?,
        };
        let least = match stride {
            0..=512 => SLAB,
            513..=8192 => stride * 8 + first,
            8193..=65536 => stride * 2 + first,
            _ => stride.checked_add(first).ok_or(too_large)?,
        };
        let slab_bytes = least.checked_next_multiple_of(page()).ok_or(too_large)?;
        let per_slab = (slab_bytes - (first - HEADER)) / stride;
        let cpus = cpus as usize + 1;
        let own = capacity.div_ceil(per_slab).saturating_add(spare.div_ceil(slab_bytes));
        let wanted = own.checked_add(cpus * HELD_BACK).ok_or(too_large)?;
        let per = slab_bytes.checked_add(size_of::<Batch>() + size_of::<Slab>()).ok_or(too_large)?;
        let fixed = Self::fixed(cpus);
        let within = limit.saturating_sub(fixed) / per;
        let slabs = wanted.min(within);
        if slabs == 0 {
            return Err(Error::Limit { held: 0, wanted: fixed.saturating_add(per), limit });
        }
        if slabs >= u32::MAX as usize / 2 {
            return Err(too_large);
        }
        let batches = slabs + cpus * 2 + 8;
        let batches_at = (cpus * size_of::<Cpu>()).next_multiple_of(64);
        let slabs_at = (batches_at + batches * size_of::<Batch>()).next_multiple_of(64);
        let objects_at = (slabs_at + slabs * size_of::<Slab>()).next_multiple_of(page());
        let total =
            slabs.checked_mul(slab_bytes).and_then(|bytes| bytes.checked_add(objects_at)).ok_or(too_large)?;
        Ok(Self {
            stride,
            first,
            align,
            per_slab,
            slab_bytes,
            slabs,
            batches,
            cpus,
            batches_at,
            slabs_at,
            objects_at,
            total,
            capacity,
            limit,
        })
    }

    /// Bytes that are counted from the start.
    fn fixed(cpus: usize) -> usize {
        (cpus * size_of::<Cpu>()).next_multiple_of(64) + (cpus * 2 + 8) * size_of::<Batch>()
    }

    /// Bytes that a cache with so many slabs in use holds.
    pub(crate) fn bytes(&self, slabs: usize) -> usize {
        Self::fixed(self.cpus) + slabs * (self.slab_bytes + size_of::<Batch>() + size_of::<Slab>())
    }
}

impl Store {
    /// `expected`: how many objects are likely to be in use.
    pub(crate) fn new(shape: Shape, expected: usize) -> Result<Self, Error> {
        let region = Region::new(shape.total)?;
        let slabs = expected.div_ceil(shape.per_slab).min(shape.slabs);
        region.prefer_large_pages(shape.objects_at, slabs * shape.slab_bytes);
        let store = Self { region, shape };
        #[cfg(loom)]
        store.make();
        Ok(store)
    }

    /// Zeroes are not what loom's atomics begin as.
    #[cfg(loom)]
    fn make(&self) {
        let shape = &self.shape;
        let base = self.region.base().as_ptr();
        // SAFETY: in their places in the region, which nobody else has yet.
        unsafe {
            (0..shape.cpus).for_each(|number| base.cast::<Cpu>().add(number).write(Cpu::default()));
            let batches = base.add(shape.batches_at).cast::<Batch>();
            (0..shape.batches).for_each(|number| batches.add(number).write(Batch::default()));
            let slabs = base.add(shape.slabs_at).cast::<Slab>();
            (0..shape.slabs).for_each(|number| slabs.add(number).write(Slab::default()));
        }
        for slab in 0..shape.slabs as u32 {
            let object = |index| self.first(slab).as_ptr().wrapping_add(index * shape.stride);
            (0..shape.per_slab).map(object).for_each(crate::model::memory::make);
        }
    }

    #[inline(always)]
    pub(crate) fn cpu(&self, number: usize) -> &Cpu {
        debug_assert!(number < self.shape.cpus);
        // SAFETY: the region begins with `cpus` records, zero at first, which is a valid record of atomics; page-aligned.
        unsafe { &*self.region.base().as_ptr().cast::<Cpu>().add(number) }
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = &Cpu> {
        (0..self.shape.cpus).map(|number| self.cpu(number))
    }

    #[inline(always)]
    pub(crate) fn batch(&self, number: u32) -> &Batch {
        debug_assert!((number as usize) < self.shape.batches);
        // SAFETY: the region has `batches` of them there, zero at first and made of atomics.
        unsafe {
            &*self.region.base().as_ptr().add(self.shape.batches_at).cast::<Batch>().add(number as usize)
        }
    }

    pub(crate) fn slab(&self, number: u32) -> &Slab {
        debug_assert!((number as usize) < self.shape.slabs);
        // SAFETY: the region has `slabs` of them there, zero at first and made of atomics.
        unsafe { &*self.region.base().as_ptr().add(self.shape.slabs_at).cast::<Slab>().add(number as usize) }
    }

    /// The first object of a slab.
    pub(crate) fn first(&self, slab: u32) -> NonNull<u8> {
        let at = self.slab_at(slab) + self.shape.first;
        // Exposed: lists keep addresses.
        let _ = self.region.base().as_ptr().expose_provenance();
        // SAFETY: slabs are inside the region, and the first object inside its slab.
        unsafe { self.region.base().add(at) }
    }

    pub(crate) fn slab_of(&self, object: *mut u8) -> u32 {
        let at = object.addr() - self.region.base().as_ptr().addr() - self.shape.objects_at;
        (at / self.shape.slab_bytes) as u32
    }

    /// Where a slab is in the region.
    pub(crate) fn slab_at(&self, slab: u32) -> usize {
        self.shape.objects_at + slab as usize * self.shape.slab_bytes
    }
}

/// The links of batches.
impl Links for Store {
    fn link(&self, number: u32) -> &AtomicU32 {
        &self.batch(number).link
    }
}

/// The links of slabs.
pub(crate) struct SlabLinks<'a>(pub(crate) &'a Store);

impl Links for SlabLinks<'_> {
    fn link(&self, number: u32) -> &AtomicU32 {
        &self.0.slab(number).link
    }
}

/// A queue of batches, which one thread at a time changes. All zeroes are an empty one.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Queue {
    /// The oldest, + 1.
    head: AtomicU32,
    /// The youngest, + 1; of no meaning while the queue is empty.
    tail: AtomicU32,
    len: AtomicU32,
}

// Relaxed throughout: the owner's; whoever takes it over has synchronised with the last owner.
impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn front(&self) -> Option<u32> {
        self.head.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(crate) fn push(&self, store: &Store, number: u32) {
        store.batch(number).link.store(0, Ordering::Relaxed);
        match self.front() {
            None => self.head.store(number + 1, Ordering::Relaxed),
            Some(_) => {
                let tail = self.tail.load(Ordering::Relaxed) - 1;
                store.batch(tail).link.store(number + 1, Ordering::Relaxed);
            }
        }
        self.tail.store(number + 1, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn pop(&self, store: &Store) -> Option<u32> {
        let number = self.front()?;
        self.head.store(store.batch(number).link.load(Ordering::Relaxed), Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(number)
    }

    /// Takes out those for which `wanted` says so, oldest first.
    pub(crate) fn take_if(
        &self,
        store: &Store,
        mut wanted: impl FnMut(&Batch) -> bool,
        mut taken: impl FnMut(u32),
    ) {
        // All go round once; those that are not wanted come back in their order.
        for _ in 0..self.len() {
            let Some(number) = self.pop(store) else { return };
            if wanted(store.batch(number)) {
                taken(number);
            } else {
                self.push(store, number);
            }
        }
    }

    pub(crate) fn iter<'a>(&'a self, store: &'a Store) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.front(), move |&number| {
            store.batch(number).link.load(Ordering::Relaxed).checked_sub(1)
        })
        .take(self.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shape(size: usize, align: usize, offset: usize) -> Shape {
        Shape::of(&CacheOptions::new(size, 1000).align_at(align, offset), 4).unwrap()
    }

    #[test]
    fn objects_fill_their_slabs_and_are_aligned_where_they_were_asked_to_be() {
        for (size, align, offset) in
            [(8, 8, 0), (24, 8, 0), (24, 64, 0), (200, 64, 56), (1, 1, 0), (5000, 4096, 0), (100_000, 64, 24)]
        {
            let shape = shape(size, align, offset);
            let store = Store::new(shape, 0).unwrap();
            let mut last = 0;
            for number in 0..shape.per_slab {
                let object = store.first(1).as_ptr().wrapping_add(number * shape.stride);
                assert!((object.addr() + offset).is_multiple_of(align), "{size} {align} {offset}");
                assert!(object.addr().is_multiple_of(8) && object.addr() - HEADER >= last);
                last = object.addr() + size;
                assert_eq!(store.slab_of(object), 1);
            }
            let end = store.region.base().as_ptr().addr() + store.slab_at(1) + shape.slab_bytes;
            assert!(last <= end && end - last < shape.stride + 4096, "{size} {align} {offset}");
        }
        assert_eq!(shape(24, 8, 0).stride, 32);
        assert_eq!(shape(24, 8, 0).per_slab, 128);
        assert_eq!(shape(120, 64, 56).stride, 128);
    }

    #[test]
    fn queues_are_first_in_first_out_and_give_out_what_is_wanted() {
        let store = Store::new(shape(24, 8, 0), 0).unwrap();
        let queue = Queue::default();
        (0..5).for_each(|number| queue.push(&store, number));
        assert_eq!(queue.pop(&store), Some(0));
        let mut odd = Vec::new();
        let is_odd = |batch: &Batch| (1..5).step_by(2).any(|number| std::ptr::eq(batch, store.batch(number)));
        queue.take_if(&store, is_odd, |number| odd.push(number));
        assert_eq!(odd, [1, 3]);
        assert_eq!(queue.iter(&store).collect::<Vec<_>>(), [2, 4]);
        queue.push(&store, 3);
        assert_eq!(std::iter::from_fn(|| queue.pop(&store)).collect::<Vec<_>>(), [2, 4, 3]);
        assert_eq!((queue.len(), queue.front()), (0, None));
    }
}
