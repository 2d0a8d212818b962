//! Making huge pages of packs that hold much code.
//!
//! A pack begins on small pages. As long as it fills few of them a huge page would be a waste of memory; when it
//! fills more than an instruction TLB has entries for, small pages cost every call of a cold program a walk. So the
//! keeper promotes a pack once there is memory for [`Config::promote_at`](crate::Config::promote_at) bytes of it.
//!
//! Protocol: the first grower that sees the pack past the threshold asks the keeper, once. The keeper gets memory for
//! the rest of the pack (under `growth`, as every growth; traps everywhere), pins the pack, and lets go of all locks:
//! the kernel takes milliseconds, once it took seconds, to copy everything into one huge page, and no load may wait for
//! it. Code in the pack runs, and is written, meanwhile. Pinned, the pack is not unmapped.
//!
//! Whether it worked is asked of the kernel afterwards. It may have been busy with the very pages (somebody else looks at
//! them, or no huge page is free just now), so it is asked a few times, and a few times more when memory has grown. A
//! refusal is reported in [`Occupancy::huge_refused`](crate::Occupancy::huge_refused), and the pack serves as it is.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::PACK_BYTES;
use crate::arena::{PackSlot, Promotion, Shared, Slot};
use crate::error::Error;
use crate::pack::Pack;

/// How often a pack that was refused for want of memory or time is tried again.
const AGAIN: u32 = 3;

impl Shared {
    /// Asks the keeper to promote the packs whose time has come. Not under a lock: where there is no keeper it is done
    /// here and now.
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
                    // Another pack may have come into the slot meanwhile, which nobody asked for.
                    && shared.is_asked(slot)
                {
                    // It is told in the occupancy, and nothing else depends on it.
                    let _ = shared.promote(slot, again);
                }
            }
        });
    }

    fn is_asked(&self, slot: usize) -> bool {
        let state = self.lock_state();
        matches!(&state.slots[slot], Slot::Pack(PackSlot { promotion: Promotion::Asked, .. }))
    }

    /// Promotes every pack, also after one was refused; returns how many are huge.
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

    /// Makes a huge page of the pack in `slot`. Whether there is a pack and it is one now. Where it is refused, the
    /// kernel may be asked `again` so often.
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

/// Asks the kernel for a huge page, again if it may just have been busy.
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
