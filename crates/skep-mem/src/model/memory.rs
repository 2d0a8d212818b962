//! Memory in models: of a cache's region, and of the system's allocator.
//!
//! Each page of a region, and each object of the allocator, has a loom cell. A look at the object reads the cell;
//! returning the memory writes it. So loom reports a look that is concurrent with or unordered to the return
//! ("Causality violation"); assertions report a look after the return, and memory that is returned twice. The memory
//! itself stays until the next execution begins.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;

use crate::Error;
use crate::layout::CacheLayout;
use crate::object::HEADER;
use crate::sync::AtomicU64;

/// Bytes in a page.
const PAGE: usize = 32;

thread_local! {
    /// All memory of this execution. loom runs all threads of a model on one system thread.
    static HEAP: RefCell<Vec<Arc<Allocation>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Allocation {
    base: NonNull<u8>,
    len: usize,
    /// For each page, whether it is there.
    pages: Vec<UnsafeCell<bool>>,
}

// SAFETY: loom checks the cells; the rest is immutable or atomic.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

#[derive(Debug)]
pub(crate) struct Region(Arc<Allocation>);

/// Begins an execution.
pub(crate) fn begin() {
    HEAP.with_borrow_mut(Vec::clear);
}

/// The number of these objects whose memory is there.
pub(crate) fn left(objects: &[*mut u8]) -> usize {
    objects.iter().filter(|object| page_of(**object, |page| page.with(is_there))).count()
}

/// A reader looks at an object that it found.
pub(crate) fn look_at(object: *mut u8) {
    assert!(page_of(object, |page| page.with(is_there)), "gone under a reader");
}

impl Allocation {
    fn new(len: usize, pages: usize) -> Arc<Self> {
        // SAFETY: callers request at least one byte.
        let base = unsafe { alloc_zeroed(layout(len)) };
        let pages = (0..pages).map(|_| UnsafeCell::new(true)).collect();
        let memory = Arc::new(Self { base: NonNull::new(base).unwrap(), len, pages });
        HEAP.with_borrow_mut(|heap| heap.push(Arc::clone(&memory)));
        memory
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), layout(self.len)) };
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.base.fmt(f)
    }
}

impl Region {
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        Ok(Self(Allocation::new(len, len.div_ceil(PAGE))))
    }

    /// No model has other processes.
    pub(crate) fn in_file(_: &str, len: usize) -> Result<Self, Error> {
        Self::new(len)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    pub(crate) fn prefer_large_pages(&self, _: usize, _: usize) {}

    /// # Safety
    ///
    /// As for the real one. No model uses pages again.
    pub(crate) unsafe fn return_to_system(&self, at: usize, len: usize) -> bool {
        self.0.pages[at / PAGE..(at + len) / PAGE].iter().for_each(lose);
        true
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Pages that were returned before stay returned.
        self.0.pages.iter().filter(|page| page.with(is_there)).for_each(lose);
    }
}

pub(crate) fn page() -> usize {
    PAGE
}

/// An object of the system's allocator.
pub(crate) fn alloc(layout: &CacheLayout) -> Option<*mut u8> {
    let memory = Allocation::new(layout.first + layout.stride - HEADER, 1);
    // SAFETY: the layout has the object there, and its header before it.
    let object = unsafe { memory.base.add(layout.first) }.as_ptr();
    object.expose_provenance();
    make(object);
    Some(object)
}

/// # Safety
///
/// As for the real one.
pub(crate) unsafe fn free(_: &CacheLayout, object: *mut u8) {
    page_of(object, lose);
}

/// Makes the header of an object.
pub(crate) fn make(object: *mut u8) {
    // SAFETY: called for objects of regions and of the allocator, before any other thread has them.
    unsafe { object.sub(HEADER).cast::<AtomicU64>().write(AtomicU64::new(0)) };
}

fn is_there(page: *const bool) -> bool {
    // SAFETY: no other thread writes it, or loom has failed the model.
    unsafe { *page }
}

fn lose(page: &UnsafeCell<bool>) {
    // SAFETY: no other thread accesses it, or loom has failed the model.
    let was_there = page.with_mut(|page| unsafe { std::mem::replace(&mut *page, false) });
    assert!(was_there, "given back twice");
}

fn page_of<R>(object: *mut u8, look: impl FnOnce(&UnsafeCell<bool>) -> R) -> R {
    let at = |memory: &Arc<Allocation>| object.addr().wrapping_sub(memory.base.as_ptr().addr());
    let memory = HEAP.with_borrow(|heap| heap.iter().find(|memory| at(memory) < memory.len).map(Arc::clone));
    let memory = memory.expect("not an object");
    let page = (at(&memory) / PAGE).min(memory.pages.len() - 1);
    look(&memory.pages[page])
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, 128).unwrap()
}
