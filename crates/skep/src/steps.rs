//! Counts steps, in tests only: they check how work grows with the size of an object or of what a host does.

/// Counts this many steps of work that might grow faster than that.
#[inline(always)]
pub(crate) fn steps(_count: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + _count as u64);
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The steps that `f` makes on this thread.
#[cfg(test)]
pub(crate) fn counted(f: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    f();
    STEPS.get() - before
}
