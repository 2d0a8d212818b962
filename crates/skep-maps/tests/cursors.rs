//! A cursor of one map used with another gives some position, but never reaches memory outside of the map.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};

use common::{map, prefix};
use skep_abi::MapKind;
use skep_maps::{BatchCursor, UpdateFlags};

/// Puts objects of 5 bytes directly before an inaccessible page.
struct Guarded;

const PAGE: usize = 4096;

// SAFETY: memory of the system, of the requested size and alignment.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() != 5 || layout.align() != 1 {
            // SAFETY: by contract.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: a fresh mapping.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE);
            at.cast::<u8>().add(PAGE - 5)
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.size() != 5 || layout.align() != 1 {
            // SAFETY: by contract.
            unsafe { System.dealloc(at, layout) };
        }
    }
}

#[global_allocator]
static GUARDED: Guarded = Guarded;

#[test]
fn a_cursor_of_another_trie_reaches_no_foreign_memory() {
    let short = map(MapKind::LpmTrie, 5, 8, 4);
    let long = map(MapKind::LpmTrie, 260, 8, 4);
    short.update(&prefix(8, &[1]), &[0; 8], UpdateFlags::Any).unwrap();
    short.update(&prefix(8, &[2]), &[0; 8], UpdateFlags::Any).unwrap();
    long.update(&prefix(2048, &[7; 256]), &[0; 8], UpdateFlags::Any).unwrap();
    let mut cursor = BatchCursor::default();
    assert_eq!(short.lookup_batch(&mut cursor, 1).unwrap().len(), 1);
    let _ = long.lookup_batch(&mut cursor, 1);
}
