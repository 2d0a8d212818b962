//! The memory of a cache: one region.
//!
//! ```text
//!   | virtual CPUs | batches | slabs | slab 0: object, object, ... | slab 1: ... |   slabs are whole pages
//!                                          carved one after the other ──>
//! ```
//!
//! A *slab* has as many objects as a *batch*, so there are never more sealed batches than slabs. Each has its record
//! from the start: bookkeeping cannot fail.

use std::ptr::NonNull;

use crate::batch::{Batch, Slab};
use crate::cpu::Cpu;
use crate::error::Error;
use crate::layout::CacheLayout;
use crate::region::Region;
use crate::stack::Links;
use crate::sync::AtomicU32;

/// The region and its layout.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) region: Region,
    pub(crate) layout: CacheLayout,
}

impl Store {
    /// `expected`: how many objects are likely to be in use. `file`: the name of the file to put them into, if other
    /// processes are to map them.
    pub(crate) fn new(
        layout: CacheLayout,
        expected: usize,
        file: Option<&'static str>,
    ) -> Result<Self, Error> {
        let region = match file {
            Some(name) => Region::in_file(name, layout.total)?,
            None => Region::new(layout.total)?,
        };
        let slabs = expected.div_ceil(layout.per_slab).min(layout.slabs);
        region.prefer_large_pages(layout.objects_at, slabs * layout.slab_bytes);
        let store = Self { region, layout };
        #[cfg(loom)]
        store.make();
        Ok(store)
    }

    /// loom's atomics must be constructed: zeroes are not valid.
    #[cfg(loom)]
    fn make(&self) {
        let layout = &self.layout;
        let base = self.region.base().as_ptr();
        // SAFETY: at their offsets in the region, which no other thread has yet.
        unsafe {
            (0..layout.cpus).for_each(|number| base.cast::<Cpu>().add(number).write(Cpu::default()));
            let batches = base.add(layout.batches_at).cast::<Batch>();
            (0..layout.batches).for_each(|number| batches.add(number).write(Batch::default()));
            let slabs = base.add(layout.slabs_at).cast::<Slab>();
            (0..layout.slabs).for_each(|number| slabs.add(number).write(Slab::default()));
        }
        for slab in 0..layout.slabs as u32 {
            let object = |index| self.first(slab).as_ptr().wrapping_add(index * layout.stride);
            (0..layout.per_slab).map(object).for_each(crate::region::make);
        }
    }

    #[inline(always)]
    pub(crate) fn cpu(&self, number: usize) -> &Cpu {
        debug_assert!(number < self.layout.cpus);
        // SAFETY: the region begins with `cpus` records, page-aligned and zero at first, which is a valid record of
        // atomics.
        unsafe { &*self.region.base().as_ptr().cast::<Cpu>().add(number) }
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = &Cpu> {
        (0..self.layout.cpus).map(|number| self.cpu(number))
    }

    #[inline(always)]
    pub(crate) fn batch(&self, number: u32) -> &Batch {
        debug_assert!((number as usize) < self.layout.batches);
        // SAFETY: the region has `batches` records there, zero at first and made of atomics.
        unsafe {
            &*self.region.base().as_ptr().add(self.layout.batches_at).cast::<Batch>().add(number as usize)
        }
    }

    pub(crate) fn slab(&self, number: u32) -> &Slab {
        debug_assert!((number as usize) < self.layout.slabs);
        // SAFETY: the region has `slabs` records there, zero at first and made of atomics.
        unsafe { &*self.region.base().as_ptr().add(self.layout.slabs_at).cast::<Slab>().add(number as usize) }
    }

    /// The first object of a slab.
    pub(crate) fn first(&self, slab: u32) -> NonNull<u8> {
        let at = self.slab_at(slab) + self.layout.first;
        // Exposed, because lists store addresses.
        let _ = self.region.base().as_ptr().expose_provenance();
        // SAFETY: slabs are inside the region, and the first object is inside its slab.
        unsafe { self.region.base().add(at) }
    }

    pub(crate) fn slab_of(&self, object: *mut u8) -> u32 {
        let at = object.addr() - self.region.base().as_ptr().addr() - self.layout.objects_at;
        (at / self.layout.slab_bytes) as u32
    }

    /// The offset of a slab in the region.
    pub(crate) fn slab_at(&self, slab: u32) -> usize {
        self.layout.objects_at + slab as usize * self.layout.slab_bytes
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::CacheOptions;
    use crate::batch::Queue;
    use crate::object::HEADER;

    fn layout(size: usize, align: usize, offset: usize) -> CacheLayout {
        CacheLayout::of(&CacheOptions::new(size, 1000).align_at(align, offset), 4).unwrap()
    }

    #[test]
    fn objects_fill_their_slabs_with_the_requested_alignment() {
        for (size, align, offset) in
            [(8, 8, 0), (24, 8, 0), (24, 64, 0), (200, 64, 56), (1, 1, 0), (5000, 4096, 0), (100_000, 64, 24)]
        {
            let layout = layout(size, align, offset);
            let store = Store::new(layout, 0, None).unwrap();
            let mut last = 0;
            for number in 0..layout.per_slab {
                let object = store.first(1).as_ptr().wrapping_add(number * layout.stride);
                assert!((object.addr() + offset).is_multiple_of(align), "{size} {align} {offset}");
                assert!(object.addr().is_multiple_of(8) && object.addr() - HEADER >= last);
                last = object.addr() + size;
                assert_eq!(store.slab_of(object), 1);
            }
            let end = store.region.base().as_ptr().addr() + store.slab_at(1) + layout.slab_bytes;
            assert!(last <= end && end - last < layout.stride + 4096, "{size} {align} {offset}");
        }
        assert_eq!(layout(24, 8, 0).stride, 32);
        assert_eq!(layout(24, 8, 0).per_slab, 128);
        assert_eq!(layout(120, 64, 56).stride, 128);
    }

    #[test]
    fn queues_are_first_in_first_out() {
        let store = Store::new(layout(24, 8, 0), 0, None).unwrap();
        let queue = Queue::default();
        (0..5).for_each(|number| queue.push(&store, number));
        assert_eq!(queue.pop(&store), Some(0));
        let mut odd = Vec::new();
        let is_odd = |number: u32| number % 2 == 1;
        queue.take_if(&store, is_odd, |number| odd.push(number));
        assert_eq!(odd, [1, 3]);
        assert_eq!(queue.iter(&store).collect::<Vec<_>>(), [2, 4]);
        queue.push(&store, 3);
        assert_eq!(std::iter::from_fn(|| queue.pop(&store)).collect::<Vec<_>>(), [2, 4, 3]);
        assert_eq!((queue.len(), queue.front()), (0, None));
    }
}
