//! The places of all objects and batches at the end of a model: each must be in exactly one.

use std::collections::HashMap;
use std::sync::PoisonError;

use crate::inner::Inner;
use crate::object;
use crate::stack::{Links, Stack};
use crate::store::SlabLinks;
use crate::sync::Ordering;

/// Everything found, with its places.
struct Census<'a> {
    inner: &'a Inner,
    objects: HashMap<usize, Vec<&'static str>>,
    batches: HashMap<u32, Vec<&'static str>>,
}

/// Counts when all threads are done. Takes the depot apart. `held`: objects that the model holds.
pub(crate) fn census(inner: &Inner, held: &[*mut u8]) {
    let (store, depot) = (&inner.store, &inner.depot);
    let mut census = Census { inner, objects: HashMap::new(), batches: HashMap::new() };
    held.iter().for_each(|object| census.object(*object, "held"));
    for cpu in store.cpus() {
        census.list(cpu.ready.take().0, "ready");
        census.list(cpu.filling.take().0, "filling");
        census.list(cpu.full.load(Ordering::Relaxed), "full");
        census.list(cpu.shared_ready.load(Ordering::Relaxed), "ready aside");
        census.list(cpu.shared_freed.load(Ordering::Relaxed), "freed aside");
        while let Some(object) = cpu.take_fresh(store.layout.stride) {
            census.object(object, "fresh");
        }
        cpu.queue.iter(store).for_each(|batch| census.full_batch(batch, "queue"));
        if let Some(batch) = cpu.spare.load(Ordering::Relaxed).checked_sub(1) {
            census.batch(batch, "spare");
        }
    }
    all_of(&depot.ready, store).for_each(|batch| census.full_batch(batch, "ready in the depot"));
    all_of(&depot.handed_over, store).for_each(|batch| census.full_batch(batch, "handed over"));
    all_of(&depot.empty, store).for_each(|batch| census.batch(batch, "empty"));
    all_of(&depot.quarantined, &SlabLinks(store)).for_each(|slab| census.slab(slab, "quarantined"));
    all_of(&depot.returned, &SlabLinks(store)).for_each(|slab| census.slab(slab, "returned"));
    let reclaim = inner.reclaim.lock().unwrap_or_else(PoisonError::into_inner);
    reclaim.waiting.iter(store).for_each(|batch| census.full_batch(batch, "waiting"));
    census.list(reclaim.partial.take().0, "the rest");
    let carved = depot.carved.load(Ordering::Relaxed);
    for slab in 0..carved {
        census.list(store.slab(slab).free.take().0, "sorted");
        for object in census.objects_of(slab) {
            let places = census.objects.get(&object.addr()).map_or(&[][..], Vec::as_slice);
            assert!(places.len() == 1, "lost or doubled: an object is in {places:?}");
        }
    }
    assert_eq!(census.objects.len(), carved as usize * store.layout.per_slab, "objects that there are not");
    for batch in 0..depot.batches.load(Ordering::Relaxed) {
        let places = census.batches.get(&batch).map_or(&[][..], Vec::as_slice);
        assert!(places.len() == 1, "lost or doubled: a batch is in {places:?}");
    }
}

/// Whether this may be an object in a list: a walk through a corrupt list must check before each step.
pub(crate) fn is_object(inner: &Inner, object: *mut u8) -> bool {
    let store = &inner.store;
    let first = store.first(0).addr().get();
    object.addr() >= first
        && object.addr() < first + store.layout.slabs * store.layout.slab_bytes
        && (object.addr() - first).is_multiple_of(store.layout.stride)
}

fn all_of<'a>(stack: &'a Stack, links: &'a impl Links) -> impl Iterator<Item = u32> + 'a {
    std::iter::from_fn(|| stack.pop(links))
}

impl Census<'_> {
    fn object(&mut self, object: *mut u8, place: &'static str) {
        assert!(is_object(self.inner, object), "lost or doubled: no object is in {place}");
        let places = self.objects.entry(object.addr()).or_default();
        places.push(place);
        assert!(places.len() == 1, "lost or doubled: an object is in {places:?}");
    }

    fn list(&mut self, list: *mut u8, place: &'static str) {
        let mut next = list;
        while !next.is_null() {
            self.object(next, place);
            // SAFETY: an object of a list; its header is always readable.
            next = unsafe { object::next(next) };
        }
    }

    fn batch(&mut self, batch: u32, place: &'static str) {
        self.batches.entry(batch).or_default().push(place);
    }

    fn full_batch(&mut self, batch: u32, place: &'static str) {
        self.batch(batch, place);
        self.list(self.inner.store.batch(batch).head.load(Ordering::Relaxed), place);
    }

    fn slab(&mut self, slab: u32, place: &'static str) {
        self.objects_of(slab).for_each(|object| self.object(object, place));
    }

    fn objects_of(&self, slab: u32) -> impl Iterator<Item = *mut u8> + use<> {
        let (first, stride) = (self.inner.store.first(slab).as_ptr(), self.inner.store.layout.stride);
        (0..self.inner.store.layout.per_slab).map(move |index| first.wrapping_add(index * stride))
    }
}
