//! The words of nodes, heads and roots.
//!
//! A node's last word says what the node is in, and where in its object the node is:
//!
//! ```text
//!   63             48 47                                   0
//!   | node's offset  | address of the head or root, or 0   |
//! ```
//!
//! User space addresses have at most 48 bits; objects have at most 4096 bytes. The other words are changed only under
//! the lock of the list or tree, or by the only owner. They are atomic all the same, relaxed: a mistake elsewhere must
//! not be undefined behaviour here.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where in the owner word the node's offset begins.
pub(super) const OFFSET_SHIFT: u32 = 48;

const ADDRESS: u64 = (1 << OFFSET_SHIFT) - 1;

/// The word at that address.
///
/// # Safety
///
/// An aligned word is there, in memory that stays mapped while the result is used, and only accessed atomically.
#[inline(always)]
pub(super) unsafe fn word<'a>(at: u64) -> &'a AtomicU64 {
    // SAFETY: by the caller's contract.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(at as usize) }
}

/// # Safety
///
/// As for [`word`].
#[inline(always)]
pub(super) unsafe fn load(at: u64) -> u64 {
    // SAFETY: by the caller's contract.
    unsafe { word(at) }.load(Ordering::Relaxed)
}

/// # Safety
///
/// As for [`word`].
#[inline(always)]
pub(super) unsafe fn store(at: u64, value: u64) {
    // SAFETY: by the caller's contract.
    unsafe { word(at) }.store(value, Ordering::Relaxed);
}

/// Makes `owner` what a node is in; `false` if it is in something already: an object that counts its owners may be put
/// into two lists at once.
///
/// # Safety
///
/// `at` is the owner word of a node.
pub(super) unsafe fn claim(at: u64, owner: u64) -> bool {
    // SAFETY: by the caller's contract.
    let word = unsafe { word(at) };
    let free = word.load(Ordering::Relaxed) & !ADDRESS;
    // Acquire: pairs with the Release in `disown`: the links of the last list are not used any more.
    word.compare_exchange(free, free | owner, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// What a node is in, or 0.
///
/// # Safety
///
/// `at` is the owner word of a node.
pub(super) unsafe fn owner(at: u64) -> u64 {
    // SAFETY: by the caller's contract.
    unsafe { load(at) & ADDRESS }
}

/// The node is in nothing any more.
///
/// # Safety
///
/// `at` is the owner word of a node that was taken out.
pub(super) unsafe fn disown(at: u64) {
    // SAFETY: by the caller's contract. Release: pairs with `claim`.
    unsafe { word(at) }.fetch_and(!ADDRESS, Ordering::Release);
}

/// The object that a node is in.
///
/// # Safety
///
/// `at` is the owner word of the node at `node`.
pub(super) unsafe fn object(node: u64, at: u64) -> u64 {
    // SAFETY: by the caller's contract.
    node - unsafe { load(at) >> OFFSET_SHIFT }
}
