//! What all handles, drafts and texts of an arena share: one range, its packs, and the locks over them.
//!
//! The problem: allocate memory for code in tens of nanoseconds from many threads, although mapping or returning a
//! pack, which is needed now and then, takes up to a millisecond.
//!
//! Protocol, two locks (and three more that are never taken while one of these is held: two in `retirement.rs`, and
//! `poking`, in `poke.rs`):
//!
//! - `state` guards all bookkeeping. It is a leaf: no other lock is taken and no memory is mapped under it (except to
//!   grow a table), so no thread waits long for it.
//! - `growth` is held around the system calls that map or unmap memory, and taken before `state`. A thread that finds
//!   no room takes it and searches again. So threads that run out of room together map one pack, and a limit is not
//!   reported while a pack is being returned.
//!
//! `state.rs` is the bookkeeping. `growth.rs` populates and returns slots, `promote.rs` makes huge pages, `reclaim.rs`
//! frees dropped texts: each adds methods to [`Shared`].
//!
//! What would break it: touching a pack's memory through anything but a `Place`, which owns its bytes, or a poke,
//! which borrows the text.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_rcu::Domain;

use crate::arch;
use crate::config::{Config, DEFAULT_READERS};
use crate::error::Error;
use crate::fault::Faults;
use crate::pack::{Kind, Pack, Resolved, resolve};
use crate::range::Reservation;
use crate::retirement::{Retirement, Storage};
use crate::seen::Seen;
use crate::sizes::{PACK_BYTES, STEP};
use crate::state::{ArenaState, PackSlot, Slot};
use crate::sync_core::SyncCore;

/// The state that all handles, drafts and texts of an arena share. Dropped with the last of them.
pub(crate) struct Shared {
    state: ManuallyDrop<Mutex<ArenaState>>,
    growth: Mutex<()>,
    pub(crate) retirement: ManuallyDrop<Retirement>,
    /// Held while a word of a text is read and written back.
    pub(crate) poking: Mutex<()>,
    pub(crate) limit: usize,
    pub(crate) max_waiting: usize,
    pub(crate) promote_at: usize,
    pub(crate) permanent: bool,
    /// Dropped before the addresses go back to the system.
    pub(crate) faults: Arc<Faults>,
    /// The state of the random number generator, if texts are placed at random.
    random: Option<AtomicU64>,
    pub(crate) kind: Kind,
    /// Whether the texts that this crate writes begin with a landing pad, enforced or not.
    pub(crate) landing_pads: bool,
    /// Why a better backing was not used.
    pub(crate) refused: Option<String>,
    pub(crate) sync_core: SyncCore,
    pub(crate) seen: Seen,
    pub(crate) domain: Domain,
    /// Dropped last: everything else is mapped in it.
    pub(crate) reservation: Reservation,
}

/// Proof that `growth` is held.
pub(crate) type Growth<'a> = MutexGuard<'a, ()>;

impl Shared {
    /// Reserves the range and maps the first pack.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let reserve = config.reserve.min(arch::MAX_RANGE);
        for (setting, bytes) in [("Config::reserve", reserve), ("Config::limit", config.limit)] {
            if bytes < PACK_BYTES {
                return Err(Error::TooSmall { setting, bytes, pack: PACK_BYTES });
            }
        }
        let sync_core = SyncCore::register()?;
        let domain = match &config.domain {
            Some(domain) => domain.clone(),
            None => Domain::new(DEFAULT_READERS)?,
        };
        if !domain.is_original() {
            return Err(Error::Forked);
        }
        let seen = Seen::open(&config.seen)?;
        // A limit says how much the user may need.
        let least = if config.limit == usize::MAX { arch::LEAST_NEAR } else { config.limit };
        let reservation = Reservation::new(reserve / PACK_BYTES * PACK_BYTES, config.near, least)?;
        let place = reservation.slots().start;
        let (only, wanted) = (config.wanted_backing(), config.kind());
        let first = if config.permanent { PACK_BYTES } else { STEP };
        // SAFETY: the first slot of a new reservation.
        let Resolved { kind, pack, refused } = unsafe { resolve(only, wanted, place, PACK_BYTES, first) }?;
        let slots = reservation.slots().len() / PACK_BYTES;
        let state = ArenaState::new(slots, pack);
        Ok(Self {
            state: ManuallyDrop::new(Mutex::new(state)),
            growth: Mutex::new(()),
            retirement: ManuallyDrop::new(Retirement::default()),
            poking: Mutex::new(()),
            limit: config.limit,
            max_waiting: config.waiting,
            promote_at: if config.huge { config.promote_at } else { usize::MAX },
            permanent: config.permanent,
            faults: Arc::new(Faults::new(reservation.slots().clone(), config.fault_handler)),
            random: config.random.then(|| AtomicU64::new(seed())),
            kind,
            landing_pads: config.landing_pads,
            refused: refused.first().map(|(backing, error)| format!("{backing}: {error}")),
            sync_core,
            seen,
            domain,
            reservation,
        })
    }

    /// Code under these locks panics only on a broken invariant, and a second panic would hide the first.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_growth(&self) -> Growth<'_> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A random number for the place of a text, if places are random.
    #[inline]
    pub(crate) fn random(&self) -> Option<u32> {
        // Relaxed: each call only needs a number of its own. Increment and mixing are those of SplitMix64 (Steele,
        // Lea and Flood, 2014).
        let step = self.random.as_ref()?.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (step ^ step >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((mixed >> 32) as u32)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.domain.is_original() && !self.forget_packs() {
            // Another thread of the parent held the lock at the fork, so the data may be half written. It is leaked.
            return;
        }
        // The executable views are unmapped with the reservation, so their places need no new mapping.
        // SAFETY: dropped only here, and not used afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.retirement);
            ManuallyDrop::drop(&mut self.state);
        }
    }
}

impl Shared {
    /// Forgets, in a forked child, the parent's aliases, whose addresses may have another use here. `false` if the
    /// fork interrupted a thread that held the lock, so the bookkeeping may be half written.
    fn forget_packs(&mut self) -> bool {
        let Some(retired) = self.retirement.take_all() else { return false };
        let Ok(mut state) = self.state.try_lock() else { return false };
        for slot in state.slots.drain(..) {
            if let Slot::Pack(PackSlot { pack, .. }) = slot {
                // A thread of the parent may share it; this process has only this handle.
                let _ = Arc::into_inner(pack).map(Pack::forget);
            }
        }
        state.stuck.drain(..).for_each(Pack::forget);
        for retired in retired {
            if let Storage::Own { pack, .. } = retired.memory {
                pack.forget();
            }
        }
        true
    }
}

/// The seed of the random places. Early at boot random numbers may be missing; then the clock is the seed.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            now.tv_nsec as u64 ^ (now.tv_sec as u64) << 32
        }
    }
}
