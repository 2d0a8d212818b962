//! From the address of an instruction to the exception table of its text, inside a signal handler.
//!
//! The problem: a handler may neither lock nor allocate, and while it looks for one text, other threads add and
//! remove others, and whole arenas. Nothing that it dereferences may be freed meanwhile, and removal may not wait
//! for it.
//!
//! ```text
//!   Index.first ──> Node ──> Node ──> ...      one for each arena that ever had probes at the same time; never freed,
//!                   range    range             used again. `range` is one word: first pack and number of packs
//!                   packs ──> [ pack 0 | pack 1 | ... ]              as long as the arena
//!                                  └──> [ chunk | chunk | chunk ... ]    as long as the arena; 8 bytes for a chunk,
//!                                           └───────┴──> Table           made when a text with probes is placed in
//!                                                                        the pack
//! ```
//!
//! A chunk belongs to one text at most, so its word is that text's table or null.
//!
//! The invariant that makes it safe: **a thread that faults in a text keeps everything on its own search path
//! alive.** The text is not removed while a thread is in it, so its table stays; the text keeps its arena, so the
//! arena's node, packs and chunks stay. The handler dereferences a pointer only after an integer comparison has
//! shown that it belongs to the faulting address. A node's range is one word, so either it contains the address (and
//! then is the faulting thread's own arena, because ranges do not overlap) or it is skipped; packs and chunks are
//! selected by the address. Words of other texts change at any time, and are never read.
//!
//! No stale entry is found: a range's word is cleared before its addresses are unmapped, so before another arena can
//! have them; a chunk's word is nulled before the chunk is free. The thread that runs the later text learned its
//! address from a thread that had entered it, after all that.
//!
//! A fault whose address is in no text (the host's own) matches no range, or a chunk that is null, because only
//! threads in texts fault on data at addresses inside a range. The cost: 8 bytes for every chunk of packs that hold
//! texts with probes. Only the touched pages of these arrays are committed, and the arrays are freed with the arena.
//! Nodes have 24 bytes and are never freed.
//!
//! All operations are single loads, stores and compare-exchanges; there is no lock that a fork or a signal could
//! leave behind, and a look-up takes as many steps as there are arenas.
//!
//! What would break it: a range word wider than one atomic; a table that is freed while a thread is in its text;
//! chunks that are reused before their words are null.

use std::ops::Range;
use std::ptr::{self, NonNull};

use super::sync::{AtomicPtr, AtomicUsize, Ordering, null_pointers};
use crate::sizes::{CHUNK_BYTES, PACK_BYTES};

/// Chunks in a pack.
const CHUNKS: usize = PACK_BYTES / CHUNK_BYTES;

/// One word for each chunk of a pack.
type Chunks<T> = [AtomicPtr<T>; CHUNKS];

/// A range as one word: the number of its first pack in the upper bits, its number of packs in these lower ones.
const COUNT_BITS: u32 = 12;
/// No arena: the node is available.
const VACANT: usize = 0;
/// A node that is being filled in: without packs, as [`VACANT`], but not available.
const TAKEN: usize = 1 << COUNT_BITS;

/// All arenas that have probes.
pub(super) struct Index<T> {
    first: AtomicPtr<Node<T>>,
}

pub(super) struct Node<T> {
    range: AtomicUsize,
    packs: AtomicPtr<Packs<T>>,
    next: *mut Node<T>,
}

struct Packs<T>(Box<[AtomicPtr<Chunks<T>>]>);

/// One arena's part of the index. Dropping it removes the arena.
pub(super) struct Directory<T: 'static> {
    start: usize,
    node: &'static Node<T>,
    packs: NonNull<Packs<T>>,
}

// SAFETY: only atomics, down to pointers to T, which are handed out as shared references.
unsafe impl<T: Sync> Sync for Directory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Send for Directory<T> {}

/// The words of a pack's chunks could not be allocated.
#[derive(Debug)]
pub(super) struct NoMemory;

impl<T> Index<T> {
    /// An index without arenas: a null pointer.
    pub(super) const fn new(first: AtomicPtr<Node<T>>) -> Self {
        Self { first }
    }

    /// Finds the entry of the text that contains `address`. Async-signal-safe.
    ///
    /// # Safety
    ///
    /// If `address` is in a registered range, the calling thread was interrupted there, in a live text, and does not
    /// return to it while it uses the result.
    pub(super) unsafe fn find(&self, address: usize) -> Option<&T> {
        // Acquire: partner of the exchange in `vacant_node`, which made the node; a node's `next` never changes.
        let mut next = self.first.load(Ordering::Acquire);
        // SAFETY: nodes are never freed.
        while let Some(node) = unsafe { next.as_ref() } {
            // Acquire: partner of the store of the range in `register`, so that the `packs` of that range are seen.
            if let Some(offset) = offset_in(node.range.load(Ordering::Acquire), address) {
                // SAFETY: guaranteed by the caller: the thread is in a text of this arena, which keeps its packs.
                let packs = unsafe { &*node.packs.load(Ordering::Relaxed) };
                // Acquire: partner of the exchange in `prepare`, so that the chunks are seen zeroed.
                let chunks = packs.0.get(offset / PACK_BYTES)?.load(Ordering::Acquire);
                // SAFETY: null, or kept as the packs are.
                let chunk = unsafe { chunks.as_ref() }?.get(offset % PACK_BYTES / CHUNK_BYTES)?;
                // Acquire: partner of the store in `enter`, so that the table is seen complete.
                // SAFETY: null, or the entry of the text that this thread is in.
                return unsafe { chunk.load(Ordering::Acquire).as_ref() };
            }
            next = node.next;
        }
        None
    }

    /// Adds an arena with its range of texts: whole packs, aligned.
    pub(super) fn register(&'static self, range: Range<usize>) -> Directory<T> {
        let count = range.len().div_ceil(PACK_BYTES);
        assert!(range.start.is_multiple_of(PACK_BYTES) && range.start > 0 && count < 1 << COUNT_BITS);
        let packs: Box<[_]> = (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let packs = NonNull::from(Box::leak(Box::new(Packs(packs))));
        let node = self.vacant_node();
        // Relaxed: the next store publishes it.
        node.packs.store(packs.as_ptr(), Ordering::Relaxed);
        // Release: partner of the load in `find`.
        node.range.store(((range.start / PACK_BYTES) << COUNT_BITS) | count, Ordering::Release);
        Directory { start: range.start, node, packs }
    }

    /// A node marked [`TAKEN`], which only the caller has.
    fn vacant_node(&self) -> &'static Node<T>
    where
        T: 'static,
    {
        // Acquire: as in `find`.
        let mut first = self.first.load(Ordering::Acquire);
        let mut next = first;
        // SAFETY: nodes are never freed.
        while let Some(node) = unsafe { next.as_ref::<'static>() } {
            // Acquire: partner of the store in `Directory::drop`, the previous owner's last access to the node.
            if node.range.compare_exchange(VACANT, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return node;
            }
            next = node.next;
        }
        let mut node = Box::new(Node {
            range: AtomicUsize::new(TAKEN),
            packs: AtomicPtr::new(ptr::null_mut()),
            next: first,
        });
        loop {
            node.next = first;
            let new = Box::into_raw(node);
            // Release: partner of the loads of `first`. Acquire on failure: that node becomes our `next`.
            match self.first.compare_exchange(first, new, Ordering::Release, Ordering::Acquire) {
                // SAFETY: never freed from now on.
                Ok(_) => return unsafe { &*new },
                Err(other) => {
                    first = other;
                    // SAFETY: made above, and no other thread has it.
                    node = unsafe { Box::from_raw(new) };
                }
            }
        }
    }
}

impl<T> Directory<T> {
    /// Allocates the words of every chunk of `text`, so that [`enter`](Self::enter) cannot fail.
    pub(super) fn prepare(&self, text: &Range<usize>) -> Result<(), NoMemory> {
        for pack in self.packs_of(text) {
            // Relaxed, here and on failure: only whether there are chunks matters; a reader that dereferences the
            // pointer acquires it.
            if !pack.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let new = Box::into_raw(null_pointers::<T, CHUNKS>().ok_or(NoMemory)?);
            // Release: partner of the loads in `find` and `chunk`.
            let exchanged = pack.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
            if exchanged.is_err() {
                // SAFETY: made above, and no other thread has it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
        Ok(())
    }

    /// Sets `table` as the entry of every address of `text`, which has been prepared and has none.
    pub(super) fn enter(&self, text: &Range<usize>, table: NonNull<T>) {
        // Release: partner of the last load in `find`.
        self.set(text, table.as_ptr(), Ordering::Release);
    }

    /// Removes the entry of `text`.
    pub(super) fn remove(&self, text: &Range<usize>) {
        // Relaxed: no thread is in the text, and the next owner of its chunks synchronises through the allocator.
        self.set(text, ptr::null_mut(), Ordering::Relaxed);
    }

    fn set(&self, text: &Range<usize>, table: *mut T, order: Ordering) {
        let (first, last) = (text.start - self.start, text.end - 1 - self.start);
        for chunk in first / CHUNK_BYTES..=last / CHUNK_BYTES {
            // Acquire: partner of the exchange in `prepare`, possibly by another thread.
            let chunks = self.packs()[chunk / CHUNKS].load(Ordering::Acquire);
            // SAFETY: prepared, and ours until drop.
            unsafe { &(&*chunks)[chunk % CHUNKS] }.store(table, order);
        }
    }

    fn packs_of(&self, text: &Range<usize>) -> &[AtomicPtr<Chunks<T>>] {
        let (first, last) = (text.start - self.start, text.end - 1 - self.start);
        &self.packs()[first / PACK_BYTES..=last / PACK_BYTES]
    }

    fn packs(&self) -> &[AtomicPtr<Chunks<T>>] {
        // SAFETY: ours until drop.
        unsafe { &self.packs.as_ref().0 }
    }
}

impl<T> Drop for Directory<T> {
    fn drop(&mut self) {
        // Release: partner of the exchange in `vacant_node`, by which the next owner takes the node.
        self.node.range.store(VACANT, Ordering::Release);
        for pack in self.packs() {
            // Acquire: partner of the exchange in `prepare`.
            let chunks = pack.load(Ordering::Acquire);
            if !chunks.is_null() {
                // SAFETY: the arena has no texts left, so no thread is in one, and none follows these pointers.
                drop(unsafe { Box::from_raw(chunks) });
            }
        }
        // SAFETY: as above; leaked by `register`.
        drop(unsafe { Box::from_raw(self.packs.as_ptr()) });
    }
}

/// The offset of `address` in the range of that word, if it is in it.
fn offset_in(range: usize, address: usize) -> Option<usize> {
    let start = (range >> COUNT_BITS) * PACK_BYTES;
    let count = range & ((1 << COUNT_BITS) - 1);
    address.checked_sub(start).filter(|&offset| offset < count * PACK_BYTES)
}
