//! What a map's value or an object owns: kept pointers, lists and trees.

use skep_abi::{MAX_SPECIAL, SpecialField, SpecialKind};

use super::word::word;
use super::{Dead, List, Tree, list, tree};
use crate::caller::Caller;
use crate::lock::{self, Guard};
use std::sync::atomic::Ordering;

/// The fields that own objects.
#[derive(Debug)]
pub(crate) struct Owning {
    /// Kept pointers, by offset.
    pointers: Vec<u32>,
    /// Lists and trees, by offset.
    roots: Vec<(u32, Root)>,
    /// The lock of the lists and trees.
    lock: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Root {
    List,
    Tree,
}

/// What becomes of lists and trees whose lock another thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Wait for the lock, unless this thread itself was interrupted while it held one.
    Wait,
    /// They stay: this is called again when no other thread can use the value.
    Keep,
}

impl Owning {
    /// Those among these fields, if any.
    pub(crate) fn of(fields: &[SpecialField]) -> Option<Self> {
        let mut owning = Self { pointers: Vec::new(), roots: Vec::new(), lock: None };
        for field in fields {
            match field.kind {
                SpecialKind::Kptr { .. } | SpecialKind::KptrPercpu { .. } => {
                    owning.pointers.push(field.offset);
                }
                SpecialKind::ListHead { .. } => owning.roots.push((field.offset, Root::List)),
                SpecialKind::RbRoot { .. } => owning.roots.push((field.offset, Root::Tree)),
                SpecialKind::SpinLock => owning.lock = Some(field.offset),
                _ => {}
            }
        }
        (!owning.pointers.is_empty() || !owning.roots.is_empty()).then_some(owning)
    }

    /// Frees what a map's value owns.
    ///
    /// # Safety
    ///
    /// `at` is a value with these fields, which stays mapped; `caller` is the calling thread.
    pub(crate) unsafe fn clear(&self, at: *mut u8, held: Held, caller: Caller) {
        let mut dead = Dead::default();
        let value = at.expose_provenance() as u64;
        // SAFETY: by the caller's contract. The lock is beside the lists, and held while they are detached.
        unsafe {
            self.take_pointers(value, &mut dead);
            let mut detached = [(0, Root::List); MAX_SPECIAL];
            if let Some(lock) = self.lock.filter(|_| !self.roots.is_empty()) {
                let lock = at.add(lock as usize);
                let guard = match held {
                    Held::Wait if !lock::is_held() => Some(Guard::take(lock)),
                    _ => Guard::try_take(lock),
                };
                if let Some(_guard) = guard {
                    self.detach(value, &mut detached);
                }
            }
            give_up(&detached, &mut dead);
            dead.free(caller);
        }
    }

    /// Takes all that a value or an object owns.
    ///
    /// # Safety
    ///
    /// `at` is a value or an object with these fields that no other thread can use.
    pub(super) unsafe fn take_all(&self, at: u64, dead: &mut Dead) {
        let mut detached = [(0, Root::List); MAX_SPECIAL];
        // SAFETY: by the caller's contract.
        unsafe {
            self.take_pointers(at, dead);
            self.detach(at, &mut detached);
            give_up(&detached, dead);
        }
    }

    /// # Safety
    ///
    /// `at` is a value or an object with these fields.
    unsafe fn take_pointers(&self, at: u64, dead: &mut Dead) {
        for &offset in &self.pointers {
            // SAFETY: by the caller's contract. AcqRel: as in `exchange`.
            unsafe {
                let object = word(at + u64::from(offset)).swap(0, Ordering::AcqRel);
                if object != 0 {
                    dead.give_up(object);
                }
            }
        }
    }

    /// # Safety
    ///
    /// `at` is a value or an object with these fields, whose lists and trees this thread may use.
    unsafe fn detach(&self, at: u64, detached: &mut [(u64, Root)]) {
        for (&(offset, root), slot) in self.roots.iter().zip(detached) {
            let at = at + u64::from(offset);
            // SAFETY: by the caller's contract.
            let first = unsafe {
                match root {
                    Root::List => List::at(at).detach(),
                    Root::Tree => Tree::at(at).detach(),
                }
            };
            *slot = (first, root);
        }
    }
}

/// # Safety
///
/// As for [`list::give_up`] and [`tree::give_up`].
unsafe fn give_up(detached: &[(u64, Root)], dead: &mut Dead) {
    for &(first, root) in detached {
        // SAFETY: by the caller's contract.
        unsafe {
            match root {
                Root::List => list::give_up(first, dead),
                Root::Tree => tree::give_up(first, dead),
            }
        }
    }
}
