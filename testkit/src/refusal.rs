//! When an allocator that tests with refuses.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts allocations of the test's thread and of keepers, and says which one is to be refused. Those of other threads
/// are not counted: the harness has some, and would end the process.
#[derive(Debug, Default)]
pub struct Refusal {
    /// How many until one is refused; it is, at 1. None at 0.
    countdown: AtomicU64,
}

thread_local! {
    static TESTED: Cell<bool> = const { Cell::new(false) };
}

impl Refusal {
    /// Refuses nothing.
    pub const fn new() -> Self {
        Self { countdown: AtomicU64::new(0) }
    }

    /// From now on the n-th allocation is refused: of this thread, or a keeper. Relaxed, here and below: a number.
    pub fn arm(&self, n: u64) {
        TESTED.set(true);
        self.countdown.store(n, Ordering::Relaxed);
    }

    /// From now on none is. Whether none was.
    pub fn disarm(&self) -> bool {
        TESTED.set(false);
        self.countdown.swap(0, Ordering::Relaxed) > 0
    }

    /// Whether this allocation is the one. Allocates nothing.
    pub fn is_due(&self) -> bool {
        self.countdown.load(Ordering::Relaxed) > 0
            && is_tested()
            && self.countdown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                == Ok(1)
    }
}

fn is_tested() -> bool {
    let mut name = [0_u8; 16];
    TESTED.get() || {
        // SAFETY: there is room for a name of 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        name.starts_with(b"skep-keeper\0")
    }
}
