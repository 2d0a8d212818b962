//! loom runs the interleavings of look-ups with the creation and removal of texts and arenas: the index is compiled
//! here a second time, with loom's atomics and packs of two chunks.
//!
//! The entries are values that loom tracks. Freeing one is modelled as a write: a concurrent look-up of it is a data
//! race, which loom reports.

#[path = "../../crates/skep-text/src/fault/index.rs"]
mod index;

/// The items of `skep-text/src/fault/sync.rs`, from loom.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    pub(super) fn null_pointers<T, const N: usize>() -> Option<Box<[AtomicPtr<T>; N]>> {
        Some(Box::new(std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))))
    }
}

/// Small sizes in place of those of `skep-text/src/sizes.rs`.
mod sizes {
    pub(super) const CHUNK_BYTES: usize = 64;
    pub(super) const PACK_BYTES: usize = 2 * CHUNK_BYTES;
}

use std::ops::Range;
use std::ptr::{self, NonNull};

use index::{Directory, Index};
use loom::cell::UnsafeCell;
use loom::thread;
use sizes::{CHUNK_BYTES, PACK_BYTES};
use sync::{AtomicPtr, AtomicUsize, Ordering};

/// The address of the models' arenas.
const HERE: usize = 16 * PACK_BYTES;
const THERE: usize = 32 * PACK_BYTES;

/// A simplified table.
struct Watched(UnsafeCell<usize>);

// SAFETY: loom checks every access.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(name: usize) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self(UnsafeCell::new(name)))))
    }

    fn name(&self) -> usize {
        // SAFETY: loom checks it.
        self.0.with(|value| unsafe { *value })
    }
}

/// Frees a table. Its memory stays, so that loom reports a wrong look-up reliably.
fn free(table: NonNull<Watched>) {
    // SAFETY: leaked.
    unsafe { table.as_ref() }.0.with_mut(|value| {
        // SAFETY: loom checks it.
        unsafe { *value = usize::MAX }
    });
}

fn index() -> &'static Index<Watched> {
    Box::leak(Box::new(Index::new(AtomicPtr::new(ptr::null_mut()))))
}

fn arena(index: &'static Index<Watched>, start: usize) -> Directory<Watched> {
    index.register(start..start + PACK_BYTES)
}

/// The text of the chunk with that number.
fn chunk(start: usize, number: usize) -> Range<usize> {
    let start = start + number * CHUNK_BYTES;
    start..start + 40
}

fn enter(arena: &Directory<Watched>, text: &Range<usize>, name: usize) -> NonNull<Watched> {
    let table = Watched::new(name);
    arena.prepare(text).unwrap();
    arena.enter(text, table);
    table
}

/// The entry that a thread finds after a fault in this text.
fn found(index: &Index<Watched>, text: &Range<usize>) -> Option<usize> {
    // SAFETY: the models run this in live texts; the must-fail model does not, and loom reports it.
    unsafe { index.find(text.start + 8) }.map(Watched::name)
}

#[test]
fn a_text_is_found_while_its_neighbour_changes() {
    loom::model(|| {
        let index = index();
        let arena = arena(index, HERE);
        enter(&arena, &chunk(HERE, 0), 1);
        let faults = thread::spawn(move || assert_eq!(found(index, &chunk(HERE, 0)), Some(1)));
        let neighbour = enter(&arena, &chunk(HERE, 1), 2);
        arena.remove(&chunk(HERE, 1));
        free(neighbour);
        faults.join().unwrap();
    });
}

/// A chunk with one text, then another, and a thread that runs the published text. `waits`: whether the chunk is
/// reused only after the thread has left.
fn a_chunk_is_used_again(waits: bool) {
    loom::model(move || {
        let index = index();
        let arena = arena(index, HERE);
        let first = enter(&arena, &chunk(HERE, 0), 1);
        // Which text is published; whether the thread has left the first.
        let state: &'static (AtomicUsize, AtomicUsize) =
            Box::leak(Box::new((AtomicUsize::new(1), AtomicUsize::new(0))));
        let faults = thread::spawn(move || {
            for _ in 0..2 {
                let published = state.0.load(Ordering::Acquire);
                if published == 0 {
                    continue;
                }
                assert_eq!(found(index, &chunk(HERE, 0)), Some(published));
            }
            state.1.store(1, Ordering::Release);
            let published = state.0.load(Ordering::Acquire);
            if published == 2 {
                assert_eq!(found(index, &chunk(HERE, 0)), Some(2));
            }
        });
        state.0.store(0, Ordering::Release);
        if !waits || state.1.load(Ordering::Acquire) == 1 {
            arena.remove(&chunk(HERE, 0));
            free(first);
            enter(&arena, &chunk(HERE, 0), 2);
            state.0.store(2, Ordering::Release);
        }
        faults.join().unwrap();
    });
}

#[test]
fn only_the_later_text_of_a_chunk_is_found() {
    a_chunk_is_used_again(true);
}

#[test]
#[should_panic]
fn the_model_detects_removal_of_a_text_in_use() {
    a_chunk_is_used_again(false);
}

#[test]
fn a_text_without_probes_finds_none_of_an_earlier_text() {
    loom::model(|| {
        let index = index();
        let arena = arena(index, HERE);
        let gone = enter(&arena, &chunk(HERE, 0), 1);
        arena.remove(&chunk(HERE, 0));
        free(gone);
        let faults = thread::spawn(move || assert_eq!(found(index, &chunk(HERE, 0)), None));
        enter(&arena, &chunk(HERE, 1), 2);
        faults.join().unwrap();
    });
}

#[test]
fn a_text_is_found_while_other_arenas_reuse_a_node() {
    loom::model(|| {
        let index = index();
        let mine = arena(index, HERE);
        let other = arena(index, THERE);
        enter(&mine, &chunk(HERE, 1), 1);
        let gone = enter(&other, &chunk(THERE, 1), 2);
        let faults = thread::spawn(move || {
            assert_eq!(found(index, &chunk(HERE, 1)), Some(1));
            // And a fault outside of all arenas.
            assert_eq!(found(index, &chunk(64 * PACK_BYTES, 0)), None);
        });
        other.remove(&chunk(THERE, 1));
        free(gone);
        drop(other);
        let third = arena(index, THERE + PACK_BYTES);
        enter(&third, &chunk(THERE + PACK_BYTES, 0), 3);
        assert_eq!(found(index, &chunk(THERE + PACK_BYTES, 0)), Some(3));
        faults.join().unwrap();
    });
}

#[test]
fn texts_of_an_arena_at_reused_addresses_are_found() {
    loom::model(|| {
        let index = index();
        let first = arena(index, HERE);
        let gone = enter(&first, &chunk(HERE, 0), 1);
        let published: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
        let faults = thread::spawn(move || {
            if published.load(Ordering::Acquire) == 2 {
                assert_eq!(found(index, &chunk(HERE, 0)), Some(2));
            }
        });
        first.remove(&chunk(HERE, 0));
        free(gone);
        drop(first);
        let second = arena(index, HERE);
        enter(&second, &chunk(HERE, 0), 2);
        published.store(2, Ordering::Release);
        faults.join().unwrap();
    });
}

#[test]
fn arenas_that_register_at_once_are_both_found() {
    loom::model(|| {
        let index = index();
        let other = thread::spawn(move || {
            let there = arena(index, THERE);
            enter(&there, &chunk(THERE, 0), 2);
            assert_eq!(found(index, &chunk(THERE, 0)), Some(2));
            there
        });
        let here = arena(index, HERE);
        enter(&here, &chunk(HERE, 0), 1);
        assert_eq!(found(index, &chunk(HERE, 0)), Some(1));
        let there = other.join().unwrap();
        assert_eq!(found(index, &chunk(THERE, 0)), Some(2));
        drop((here, there));
        assert_eq!(found(index, &chunk(HERE, 0)), None);
    });
}

#[test]
fn two_simultaneous_first_texts_of_a_pack_are_found() {
    loom::model(|| {
        let index = index();
        let shared: &'static Directory<Watched> = Box::leak(Box::new(arena(index, HERE)));
        let other = thread::spawn(move || {
            enter(shared, &chunk(HERE, 1), 2);
            assert_eq!(found(index, &chunk(HERE, 1)), Some(2));
        });
        enter(shared, &chunk(HERE, 0), 1);
        assert_eq!(found(index, &chunk(HERE, 0)), Some(1));
        other.join().unwrap();
        assert_eq!(found(index, &chunk(HERE, 1)), Some(2));
    });
}
