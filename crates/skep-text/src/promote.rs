//! Promotion: moving packs that hold much code to huge pages.
//!
//! A pack begins on base pages. While it fills few of them, a huge page would waste memory; once it fills more than
//! an instruction TLB has entries, base pages cost every call of a cold program a page walk. So the keeper promotes
//! a pack that has memory for [`Config::promote_at`](crate::Config::promote_at) bytes.
//!
//! Protocol: the first thread that grows the pack past the threshold wakes the keeper, once. The keeper populates
//! the rest of the pack (under `growth`, as every growth; with traps), pins the pack, and releases all locks: the
//! kernel takes milliseconds, in one case seconds, to copy everything into one huge page, and no load may wait for
//! that. Meanwhile code in the pack runs and is written. A pinned pack is not unmapped.
//!
//! Afterwards the keeper checks the kernel's result. The kernel may have been busy with these pages (another thread
//! inspects them, or no huge page is free), so the keeper tries a few times, and a few times more after later
//! growth. A refusal is reported in [`Occupancy::huge_refused`](crate::Occupancy::huge_refused), and the pack stays
//! as it is.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::Error;
use crate::pack::Pack;
use crate::shared::Shared;
use crate::sizes::PACK_BYTES;
use crate::state::{PackSlot, Promotion, Slot};

/// How often promotion is retried for a pack that was refused for lack of memory or time.
const AGAIN: u32 = 3;

impl Shared {
    /// Wakes the keeper for the packs that are due for promotion. Not to be called under a lock: without a keeper,
    /// this thread promotes.
    pub(crate) fn consider_promotions(self: &Arc<Self>) {
        let wants = |slot: &PackSlot| {
            let open = matches!(slot.promotion, Promotion::NotYet | Promotion::Refused { again: 1.., .. });
            open && slot.pack.populated() >= self.promote_at
        };
        let mut asked = Vec::new();
        for (number, slot) in self.lock_state().slots.iter_mut().enumerate() {
            if let Slot::Pack(slot) = slot
                && wants(slot)
            {
                let again = match slot.promotion {
                    Promotion::Refused { again, .. } => again - 1,
                    _ => AGAIN,
                };
                slot.promotion = Promotion::Asked;
                asked.push((number, again));
            }
        }
        if asked.is_empty() {
            return;
        }
        let shared = Arc::downgrade(self);
        self.domain.defer(move || {
            for (slot, again) in asked {
                if let Some(shared) = shared.upgrade()
                    // Another pack may be in the slot now, for which the keeper was not woken.
                    && shared.is_asked(slot)
                {
                    // The occupancy reports the error, and nothing else depends on it.
                    let _ = shared.promote(slot, again);
                }
            }
        });
    }

    fn is_asked(&self, slot: usize) -> bool {
        let state = self.lock_state();
        matches!(&state.slots[slot], Slot::Pack(PackSlot { promotion: Promotion::Asked, .. }))
    }

    /// Promotes every pack, continuing after a refusal; returns how many are huge.
    pub(crate) fn promote_all(self: &Arc<Self>) -> Result<usize, Error> {
        let slots = self.lock_state().slots.len();
        let mut huge = 0;
        let mut refused = None;
        for slot in 0..slots {
            match self.promote(slot, 0) {
                Ok(is_huge) => huge += usize::from(is_huge),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        refused.map_or(Ok(huge), Err)
    }

    /// Makes a huge page of the pack in `slot`. Returns whether the slot has a pack and it is huge now. After a
    /// refusal, `again` sets how many more times the kernel may be asked.
    fn promote(self: &Arc<Self>, slot: usize, again: u32) -> Result<bool, Error> {
        if !self.domain.is_original() {
            return Err(Error::Forked);
        }
        let growth = self.lock_growth();
        match &mut self.lock_state().slots[slot] {
            Slot::Pack(PackSlot { promotion: Promotion::Huge, .. }) => return Ok(true),
            Slot::Pack(PackSlot { pinned: false, .. }) => {}
            _ => return Ok(false),
        }
        let result = self.populate(&growth, slot, PACK_BYTES);
        let pack = match &mut self.lock_state().slots[slot] {
            Slot::Pack(slot) => {
                slot.pinned = true;
                Arc::clone(&slot.pack)
            }
            _ => return Ok(false),
        };
        drop(growth);
        let result = result.and_then(|()| patiently(&pack));
        drop(pack);
        let mut state = self.lock_state();
        if let Slot::Pack(slot) = &mut state.slots[slot] {
            slot.pinned = false;
            slot.promotion = match &result {
                Ok(()) => Promotion::Huge,
                Err(error) => {
                    let may_pass = error.may_pass() || matches!(error, Error::Limit { .. });
                    let again = if may_pass { again } else { 0 };
                    Promotion::Refused { why: error.to_string(), again }
                }
            };
        }
        let trim = state.chunks.empty_regions() > 1 && !self.permanent;
        drop(state);
        if trim {
            self.trim(&self.lock_growth(), 1);
        }
        result.map(|()| true)
    }
}

/// Asks the kernel for a huge page, and again if it may only have been busy.
fn patiently(pack: &Pack) -> Result<(), Error> {
    const ATTEMPTS: u32 = 6;

    let mut pause = Duration::from_millis(1);
    for _ in 1..ATTEMPTS {
        match pack.promote() {
            Err(error) if error.errno() != Some(Errno::INVAL) => thread::sleep(pause),
            result => return result,
        }
        pause *= 2;
    }
    pack.promote()
}
