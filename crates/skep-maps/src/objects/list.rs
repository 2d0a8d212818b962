//! Lists that own their objects (`struct bpf_list_head`, `struct bpf_list_node`).
//!
//! ```text
//!   head   | first | last |              zeroes: empty, as a map's new value has it
//!   node   | next | previous | owner |   ends are 0
//! ```
//!
//! Every call on a list holds the lock beside its head: the verifier proves it. A dead object's lists are its
//! destroyer's alone.

use super::word::{claim, disown, load, object, owner, store};
use super::{Dead, release};

/// The size of a head.
pub(super) const HEAD_BYTES: u32 = 16;
/// The size of a node.
pub(super) const NODE_BYTES: u32 = 24;
/// The word of a node that says which list it is in.
pub(super) const OWNER: u64 = 16;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first object's.
    Front,
    /// The last object's.
    Back,
}

impl End {
    /// The offset of the head's word that leads to this end, and of a node's word that leads away from it.
    const fn offset(self) -> u64 {
        match self {
            Self::Front => 0,
            Self::Back => 8,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Front => Self::Back,
            Self::Back => Self::Front,
        }
    }
}

/// The list of a head.
#[derive(Clone, Copy, Debug)]
pub struct List(u64);

impl List {
    /// # Safety
    ///
    /// `head` is the address of a list's head in a map's value or an object, whose lock this thread holds, or which no
    /// other thread can use, as long as this is used.
    pub unsafe fn at(head: u64) -> Self {
        Self(head)
    }

    /// Adds an object by its node at one end. If it is in a list or tree already, gives up the owner instead and
    /// returns `false`.
    ///
    /// # Safety
    ///
    /// `node` is a list node of an object that the caller owns; `cpu` as for [`release`].
    pub unsafe fn push(self, end: End, node: u64, cpu: u32) -> bool {
        let (near, far) = (end.offset(), end.other().offset());
        // SAFETY: by the caller's contract and that of `at`; linked nodes are in objects that the list owns.
        unsafe {
            if !claim(node + OWNER, self.0) {
                release(object(node, node + OWNER), cpu);
                return false;
            }
            let old = load(self.0 + near);
            // Away from this end is towards the old first node.
            store(node + near, old);
            store(node + far, 0);
            store(if old == 0 { self.0 + far } else { old + far }, node);
            store(self.0 + near, node);
        }
        true
    }

    /// The object that a list node is in.
    ///
    /// # Safety
    ///
    /// `node` is a list node of an object that the caller owns.
    pub unsafe fn object(node: u64) -> u64 {
        // SAFETY: by the caller's contract.
        unsafe { object(node, node + OWNER) }
    }

    /// The node at one end, or 0.
    pub fn end(self, end: End) -> u64 {
        // SAFETY: by the contract of `at`.
        unsafe { load(self.0 + end.offset()) }
    }

    /// Takes out the object at one end, which the caller then owns. Returns its node, or 0.
    pub fn pop(self, end: End) -> u64 {
        let (near, far) = (end.offset(), end.other().offset());
        // SAFETY: by the contract of `at`; linked nodes are in objects that the list owns.
        unsafe {
            let node = load(self.0 + near);
            if node == 0 {
                return 0;
            }
            debug_assert_eq!(owner(node + OWNER), self.0);
            let next = load(node + near);
            store(self.0 + near, next);
            store(if next == 0 { self.0 + far } else { next + far }, 0);
            disown(node + OWNER);
            node
        }
    }

    /// Empties the list; returns the first node of what was in it, or 0.
    pub(super) fn detach(self) -> u64 {
        let first = self.end(End::Front);
        // SAFETY: by the contract of `at`.
        unsafe {
            store(self.0, 0);
            store(self.0 + 8, 0);
        }
        first
    }
}

/// Gives up the objects of a list that was [detached](List::detach).
///
/// # Safety
///
/// `node` is what `detach` returned, and this is the only call with it.
pub(super) unsafe fn give_up(mut node: u64, dead: &mut Dead) {
    while node != 0 {
        // SAFETY: the list owned the objects of its nodes; whoever claims a node that is disowned does not read its
        // links, and this thread has read them.
        unsafe {
            let (next, of) = (load(node), object(node, node + OWNER));
            disown(node + OWNER);
            dead.give_up(of);
            node = next;
        }
    }
}
