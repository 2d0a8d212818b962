//! The pool's own figures against those of an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skep_mem::{Pool, PoolOptions};

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed: other threads of the test harness do not disturb it.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `pool` alone holds: the test's own allocations are made outside of `work`.
fn growth(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    work();
    LIVE.get() - before
}

#[test]
fn a_pool_reports_every_byte_it_takes_and_gives_all_of_them_back() {
    let before = LIVE.get();
    for (size, align) in [(8, 8), (24, 8), (200, 64), (70_000, 64)] {
        let mut pool = None;
        let mut held = growth(|| pool = Pool::new(&PoolOptions::new(size, 2_000).align(align)).ok());
        let pool = pool.unwrap();
        assert_eq!(pool.bytes(), held);
        for round in 0..2_000 {
            held += growth(|| {
                pool.alloc().unwrap();
            });
            assert_eq!(pool.bytes(), held, "after {round} objects of {size} bytes");
        }
        drop(pool);
        assert_eq!(LIVE.get(), before);
    }
}
