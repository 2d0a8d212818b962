//! What a run holds.
//!
//! Nearly all programs hold one or two things at a time and release the last one first, so the first few are in place
//! and looked for from the end.

/// How something is released that a program held: by what stands for it, and the number of the run's CPU.
///
/// # Safety
///
/// Callers guarantee that the run held it, that nobody uses it afterwards, and that the thread is in the run's section.
pub(crate) type Release = unsafe fn(u64, u32);

/// Something that a program must release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// An address, or a number that is none.
    pub(crate) what: u64,
    pub(crate) release: Release,
}

/// In place.
const FEW: usize = 6;

/// What a run holds, in the order of acquisition.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    few: [Option<Held>; FEW],
    len: usize,
    more: Vec<Held>,
}

impl Ledger {
    #[inline]
    pub(super) fn record(&mut self, held: Held) {
        match self.few.get_mut(self.len) {
            Some(free) if self.more.is_empty() => {
                *free = Some(held);
                self.len += 1;
            }
            _ => self.more.push(held),
        }
    }

    /// Removes the last record of it.
    #[inline]
    pub(super) fn forget(&mut self, what: u64) {
        let is = |held: &Held| held.what == what;
        if let Some(at) = self.more.iter().rposition(is) {
            self.more.remove(at);
            return;
        }
        let few = &mut self.few[..self.len];
        if let Some(at) = few.iter().rposition(|held| held.as_ref().is_some_and(is)) {
            few[at..].rotate_left(1);
            self.len -= 1;
            self.few[self.len] = None;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.more.is_empty()
    }

    /// Releases everything, the last first.
    ///
    /// # Safety
    ///
    /// As [`Release`], for all that is recorded.
    #[cold]
    pub(super) unsafe fn release(&mut self, cpu: u32) {
        let few = std::mem::take(&mut self.few);
        self.len = 0;
        let all = std::mem::take(&mut self.more).into_iter().rev().chain(few.into_iter().flatten().rev());
        for Held { what, release } in all {
            // SAFETY: the caller's promise.
            unsafe { release(what, cpu) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static RELEASED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    unsafe fn note(what: u64, _: u32) {
        RELEASED.with_borrow_mut(|released| released.push(what));
    }

    /// The oracle is a plain list.
    #[test]
    fn what_was_not_forgotten_is_released_last_first() {
        let mut random = 1u64;
        for _ in 0..2_000 {
            let (mut ledger, mut list) = (Ledger::default(), Vec::new());
            for _ in 0..random % 40 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let what = random >> 61;
                if random >> 33 & 3 > 0 {
                    ledger.record(Held { what, release: note });
                    list.push(what);
                } else {
                    ledger.forget(what);
                    if let Some(at) = list.iter().rposition(|held| *held == what) {
                        list.remove(at);
                    }
                }
                assert_eq!(ledger.is_empty(), list.is_empty());
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // SAFETY: `note` does nothing with it.
            unsafe { ledger.release(0) };
            list.reverse();
            assert_eq!(RELEASED.take(), list);
        }
    }
}
