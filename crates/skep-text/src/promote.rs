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
//! them, or no huge page is free just now), so it is asked a few times. A refusal is reported in
//! [`Occupancy::huge_refused`](crate::Occupancy::huge_refused), and the pack serves as it is.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use rustix::io::Errno;

use crate::PACK_BYTES;
use crate::arena::{PackSlot, Promotion, Shared, Slot};
use crate::error::Error;
use crate::pack::Pack;

impl Shared {
    /// Asks the keeper to promote the pack in `slot`, if it is time. Not under a lock: where there is no keeper it is
    /// done here and now.
    pub(crate) fn consider_promotion(self: &Arc<Self>, slot: usize) {
        let mut state = self.lock_state();
        let Slot::Pack(PackSlot { pack, promotion, .. }) = &mut state.slots[slot] else { return };
        if pack.populated() < self.promote_at || !matches!(promotion, Promotion::NotYet) {
            return;
        }
        *promotion = Promotion::Asked;
        drop(state);
        let shared = Arc::downgrade(self);
        self.domain.defer(move || {
            if let Some(shared) = shared.upgrade() {
                // It is told in the occupancy, and nothing else depends on it.
                let _ = shared.promote(slot);
            }
        });
    }

    /// Promotes every pack; returns how many are huge.
    pub(crate) fn promote_all(self: &Arc<Self>) -> Result<usize, Error> {
        let slots = self.lock_state().slots.len();
        let mut huge = 0;
        for slot in 0..slots {
            huge += usize::from(self.promote(slot)?);
        }
        Ok(huge)
    }

    /// Makes a huge page of the pack in `slot`. Whether there is a pack and it is one now.
    fn promote(self: &Arc<Self>, slot: usize) -> Result<bool, Error> {
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
                Err(error) => Promotion::Refused(io::Error::other(error.to_string())),
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
