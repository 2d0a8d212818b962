//! Decides which allocation a test's allocator refuses.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts allocations of the test's thread and of keepers, and selects the one to refuse. Allocations of other
/// threads do not count: the test harness makes some, and a refusal would end the process.
#[derive(Debug, Default)]
pub struct Refusal {
    /// Allocations until the refused one, which is the one at 1; at 0 none is refused.
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

    /// Refuses the n-th allocation from now on, of this thread or a keeper. Relaxed, here and below: a plain counter.
    pub fn arm(&self, n: u64) {
        TESTED.set(true);
        self.countdown.store(n, Ordering::Relaxed);
    }

    /// Refuses none from now on. Returns whether none was refused.
    pub fn disarm(&self) -> bool {
        TESTED.set(false);
        self.countdown.swap(0, Ordering::Relaxed) > 0
    }

    /// Whether to refuse this allocation. Allocates nothing itself.
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
