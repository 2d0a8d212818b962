//! loom runs the interleavings of a process that looks a key up in a hash table and of one that changes the table.
//!
//! The reader's side is the library's. The writer's is that of `skep-maps/src/{version,hash}.rs`, step by step.

#[path = "../../crates/skep-preload/src/version.rs"]
mod version;

/// The items of `skep-preload/src/sync.rs`, from loom.
mod sync {
    use std::cell::Cell;

    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

    thread_local! {
        /// Whether the reader's fences are left out. loom runs all threads of a model on one system thread.
        pub(crate) static NO_FENCE: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn fence(order: Ordering) {
        if !NO_FENCE.get() {
            loom::sync::atomic::fence(order);
        }
    }
}

use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use sync::{AtomicU64, NO_FENCE, Ordering};
use version::Attempt;

const OURS: u64 = 1;
const OTHER: u64 = 2;
const OWNED: u64 = 1;
const VERSION: u64 = 1 << 17;

/// An element; its value is two words that are always equal.
#[derive(Default)]
struct Element {
    /// The number of an element + 1, or 0.
    next: AtomicU64,
    key: AtomicU64,
    value: [AtomicU64; 2],
}

#[derive(Default)]
struct Model {
    head: AtomicU64,
    version: AtomicU64,
    elements: [Element; 2],
    /// The number of a free element + 1, or 0.
    free: AtomicU64,
}

/// What a writer does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    KeepsVersion,
    FillsWithoutFence,
    LocksWithoutFence,
}

impl Model {
    fn fill(&self, element: usize, key: u64, value: u64, next: u64, wrong: Wrong) {
        if wrong != Wrong::FillsWithoutFence {
            fence(Ordering::Release);
        }
        let element = &self.elements[element];
        element.key.store(key, Ordering::Relaxed);
        element.value.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        element.next.store(next, Ordering::Relaxed);
    }

    fn lock(&self, wrong: Wrong) {
        let free = self.version.load(Ordering::Relaxed);
        let taken = self.version.compare_exchange(free, free | OWNED, Ordering::Acquire, Ordering::Relaxed);
        assert!(taken.is_ok(), "there is one writer");
        if wrong != Wrong::LocksWithoutFence {
            fence(Ordering::Release);
        }
    }

    fn unlock(&self, wrong: Wrong) {
        let free = self.version.load(Ordering::Relaxed) & !OWNED;
        let more = if wrong == Wrong::KeepsVersion { 0 } else { VERSION };
        self.version.store(free + more, Ordering::Release);
    }

    /// Replaces element 0, which is first, by element 1.
    fn replace(&self, wrong: Wrong) {
        self.lock(wrong);
        self.fill(1, OURS, 11, 0, Wrong::Nothing);
        self.head.store(2, Ordering::Release);
        self.unlock_and_free(1, wrong);
    }

    /// Removes element 1, which is before element 0.
    fn remove(&self, wrong: Wrong) {
        self.lock(wrong);
        self.head.store(1, Ordering::Release);
        self.unlock_and_free(2, wrong);
    }

    fn unlock_and_free(&self, element: u64, wrong: Wrong) {
        self.unlock(wrong);
        self.free.store(element, Ordering::Release);
    }

    /// Another thread uses a free element for another key, in another bucket.
    fn reuse(&self, wrong: Wrong) {
        if let Some(element) = self.free.load(Ordering::Acquire).checked_sub(1) {
            self.fill(element as usize, OTHER, 20, 0, wrong);
        }
    }

    /// Changes the value of element 0 in place.
    fn change(&self, wrong: Wrong) {
        self.lock(wrong);
        self.elements[0].value.iter().for_each(|word| word.store(11, Ordering::Relaxed));
        self.unlock(wrong);
    }

    /// One look for the key that is always there.
    fn read(&self) {
        let Some(attempt) = Attempt::begin(&self.version) else { return };
        let mut found = None;
        let mut next = self.head.load(Ordering::Acquire);
        for _ in 0..3 {
            let Some(element) = next.checked_sub(1) else { break };
            let element = &self.elements[element as usize];
            if element.key.load(Ordering::Relaxed) == OURS {
                found = Some([0, 1].map(|word| element.value[word].load(Ordering::Relaxed)));
                break;
            }
            next = element.next.load(Ordering::Acquire);
        }
        if attempt.is_valid() {
            assert!(matches!(found, Some([10, 10] | [11, 11])), "misled: {found:?}");
        }
    }
}

/// A change, and the number of the first element before it + 1.
type Change = (fn(&Model, Wrong), u64);

const REPLACE: Change = (Model::replace, 1);
const REMOVE: Change = (Model::remove, 2);
const IN_PLACE: Change = (Model::change, 2);

fn read_during((change, first): Change, wrong: Wrong) {
    let model = Arc::new(Model::default());
    model.fill(0, OURS, 10, 0, Wrong::Nothing);
    model.fill(1, OTHER, 20, 1, Wrong::Nothing);
    model.head.store(first, Ordering::Release);
    let reader = {
        let model = Arc::clone(&model);
        thread::spawn(move || model.read())
    };
    let writer = {
        let model = Arc::clone(&model);
        thread::spawn(move || change(&model, wrong))
    };
    model.reuse(wrong);
    writer.join().unwrap();
    reader.join().unwrap();
}

fn fails(change: Change, wrong: Wrong) {
    let found = catch_unwind(AssertUnwindSafe(|| loom::model(move || read_during(change, wrong))));
    let panic = found.expect_err("loom found nothing wrong");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("misled"), "it failed for another reason: {text}");
}

#[test]
fn a_valid_look_up_finds_the_key_and_one_value_of_it() {
    loom::model(|| read_during(REPLACE, Wrong::Nothing));
    loom::model(|| read_during(REMOVE, Wrong::Nothing));
    loom::model(|| read_during(IN_PLACE, Wrong::Nothing));
}

#[test]
fn every_step_of_the_writer_is_needed() {
    fails(REPLACE, Wrong::KeepsVersion);
    fails(REPLACE, Wrong::FillsWithoutFence);
    fails(REMOVE, Wrong::KeepsVersion);
    fails(REMOVE, Wrong::FillsWithoutFence);
    fails(IN_PLACE, Wrong::KeepsVersion);
    fails(IN_PLACE, Wrong::LocksWithoutFence);
}

#[test]
fn without_the_reader_s_fence_a_look_up_is_misled() {
    NO_FENCE.set(true);
    let found = catch_unwind(|| fails(REPLACE, Wrong::Nothing));
    NO_FENCE.set(false);
    found.unwrap();
}
