//! Trees that own their objects (`struct bpf_rb_root`, `struct bpf_rb_node`): red-black trees as in textbooks, with
//! links to parents, so that nothing recurses.
//!
//! ```text
//!   root   | top node | unused |         zeroes: empty, as a map's new value has it
//!   node   | left | right | parent; bit 0: red | owner |
//! ```
//!
//! No red node has a red child, and every path down from a node passes as many black ones: a tree of n nodes is at most
//! 2 log2(n + 1) deep. The program's function decides the order; if it contradicts itself, the order is wrong, but
//! the tree is still a tree.
//!
//! Every call holds the lock beside the root: the verifier proves it, also that the comparing function does not
//! change the tree.

use super::word::{claim, disown, load, object, owner, store};
use super::{Dead, release};

/// The size of a root.
pub(super) const ROOT_BYTES: u32 = 16;
/// The size of a node.
pub(super) const NODE_BYTES: u32 = 32;
/// The word of a node that says which tree it is in.
pub(super) const OWNER: u64 = 24;

const PARENT: u64 = 16;
const RED: u64 = 1;

/// A side of a node: the offset of the link to that child.
type Side = u64;
const LEFT: Side = 0;
const RIGHT: Side = 8;

const fn opposite(side: Side) -> Side {
    RIGHT - side
}

/// The tree of a root.
#[derive(Clone, Copy, Debug)]
pub struct Tree(u64);

impl Tree {
    /// # Safety
    ///
    /// `root` is the address of a tree's root in a map's value or an object, whose lock this thread holds, or which no
    /// other thread can use, as long as this is used.
    pub unsafe fn at(root: u64) -> Self {
        Self(root)
    }

    /// The object that a tree node is in.
    ///
    /// # Safety
    ///
    /// `node` is a tree node of an object that the caller owns.
    pub unsafe fn object(node: u64) -> u64 {
        // SAFETY: by the caller's contract.
        unsafe { object(node, node + OWNER) }
    }

    /// Adds an object by its node, behind those that are not greater. If it is in a list or tree already, gives up the
    /// owner instead and returns `false`.
    ///
    /// # Safety
    ///
    /// `node` is a tree node of an object that the caller owns; `cpu` as for [`release`]. `less` does not change
    /// the tree.
    pub unsafe fn add(self, node: u64, cpu: u32, mut less: impl FnMut(u64, u64) -> bool) -> bool {
        // SAFETY: by the caller's contract and that of `at`; linked nodes are in objects that the tree owns.
        unsafe {
            if !claim(node + OWNER, self.0) {
                release(object(node, node + OWNER), cpu);
                return false;
            }
            let (mut above, mut at, mut side) = (0, self.top(), LEFT);
            while at != 0 {
                above = at;
                side = if less(node, at) { LEFT } else { RIGHT };
                at = child(at, side);
            }
            store(node + LEFT, 0);
            store(node + RIGHT, 0);
            store(node + PARENT, above | RED);
            store(if above == 0 { self.0 } else { above + side }, node);
            self.balance_added(node);
        }
        true
    }

    /// Takes out an object by its node; the caller then owns it. `false` if it is not in this tree.
    ///
    /// # Safety
    ///
    /// `node` is a tree node of an object that something owns.
    pub unsafe fn remove(self, node: u64) -> bool {
        // SAFETY: by the caller's contract and that of `at`.
        unsafe {
            if owner(node + OWNER) != self.0 {
                return false;
            }
            self.unlink(node);
            disown(node + OWNER);
        }
        true
    }

    /// The first node, or 0.
    pub fn first(self) -> u64 {
        // SAFETY: by the contract of `at`.
        unsafe { lowest(self.top()) }
    }

    /// The node at the top, or 0.
    pub fn top(self) -> u64 {
        // SAFETY: by the contract of `at`.
        unsafe { load(self.0) }
    }

    /// A node's children, or 0; 0 also if the node is not in this tree.
    ///
    /// # Safety
    ///
    /// `node` is a tree node of an object that something owns.
    pub unsafe fn children(self, node: u64) -> (u64, u64) {
        // SAFETY: by the caller's contract and that of `at`.
        unsafe {
            match owner(node + OWNER) == self.0 {
                true => (child(node, LEFT), child(node, RIGHT)),
                false => (0, 0),
            }
        }
    }

    /// Empties the tree; returns the top node of what was in it, or 0.
    pub(super) fn detach(self) -> u64 {
        let top = self.top();
        // SAFETY: by the contract of `at`.
        unsafe { store(self.0, 0) };
        top
    }

    /// Restores the colours after a red node was added.
    ///
    /// # Safety
    ///
    /// `node` is in the tree.
    unsafe fn balance_added(self, mut node: u64) {
        // SAFETY: all of these are nodes of the tree: a red node has a parent, since the top one is black.
        unsafe {
            loop {
                let above = parent(node);
                if above == 0 || !is_red(above) {
                    break;
                }
                let top = parent(above);
                let side = side_of(above, top);
                let uncle = child(top, opposite(side));
                if is_red(uncle) {
                    paint(above, false);
                    paint(uncle, false);
                    paint(top, true);
                    node = top;
                    continue;
                }
                let mut above = above;
                if node == child(above, opposite(side)) {
                    self.rotate(above, side);
                    above = node;
                }
                paint(above, false);
                paint(top, true);
                self.rotate(top, opposite(side));
                break;
            }
            paint(self.top(), false);
        }
    }

    /// # Safety
    ///
    /// `node` is in the tree.
    unsafe fn unlink(self, node: u64) {
        // SAFETY: all of these are nodes of the tree, or 0 where that is checked.
        unsafe {
            let (left, right) = (child(node, LEFT), child(node, RIGHT));
            // What takes the place of the node that is really missing, its parent, and whether a red one is missing.
            let (moved, above, red);
            if left == 0 || right == 0 {
                (moved, above, red) = (left | right, parent(node), is_red(node));
                self.replace(node, moved);
            } else {
                let next = lowest(right);
                red = is_red(next);
                moved = child(next, RIGHT);
                if parent(next) == node {
                    above = next;
                } else {
                    above = parent(next);
                    self.replace(next, moved);
                    adopt(next, RIGHT, right);
                }
                self.replace(node, next);
                adopt(next, LEFT, left);
                paint(next, is_red(node));
            }
            if !red {
                self.balance_removed(moved, above);
            }
        }
    }

    /// Restores the number of black nodes on each path after one was removed above `node`, which may be 0.
    ///
    /// # Safety
    ///
    /// `above` is 0 or the node of the tree that has `node` as a child.
    unsafe fn balance_removed(self, mut node: u64, mut above: u64) {
        // SAFETY: all of these are nodes of the tree: the sibling of a node that lacks a black one exists.
        unsafe {
            while above != 0 && !is_red(node) {
                let side = side_of(node, above);
                let mut sibling = child(above, opposite(side));
                if is_red(sibling) {
                    paint(sibling, false);
                    paint(above, true);
                    self.rotate(above, side);
                    sibling = child(above, opposite(side));
                }
                if !is_red(child(sibling, LEFT)) && !is_red(child(sibling, RIGHT)) {
                    paint(sibling, true);
                    node = above;
                    above = parent(node);
                    continue;
                }
                if !is_red(child(sibling, opposite(side))) {
                    paint(child(sibling, side), false);
                    paint(sibling, true);
                    self.rotate(sibling, opposite(side));
                    sibling = child(above, opposite(side));
                }
                paint(sibling, is_red(above));
                paint(above, false);
                paint(child(sibling, opposite(side)), false);
                self.rotate(above, side);
                node = self.top();
                break;
            }
            paint(node, false);
        }
    }

    /// Moves a node down to one side; its child on the other side takes its place.
    ///
    /// # Safety
    ///
    /// `node` is in the tree and has that child.
    unsafe fn rotate(self, node: u64, side: Side) {
        // SAFETY: by the caller's contract.
        unsafe {
            let up = child(node, opposite(side));
            adopt(node, opposite(side), child(up, side));
            self.replace(node, up);
            adopt(up, side, node);
        }
    }

    /// Lets `new`, which may be 0, take the place of a node below its parent.
    ///
    /// # Safety
    ///
    /// `old` is linked in the tree, `new` is 0 or a node of it.
    unsafe fn replace(self, old: u64, new: u64) {
        // SAFETY: by the caller's contract.
        unsafe {
            let above = parent(old);
            let link = if above == 0 { self.0 } else { above + side_of(old, above) };
            store(link, new);
            if new != 0 {
                set_parent(new, above);
            }
        }
    }
}

/// Gives up the objects of a tree that was [detached](Tree::detach): turns each left branch to the right until
/// there is none, so that nothing has to be remembered.
///
/// # Safety
///
/// `node` is what `detach` returned, and this is the only call with it.
pub(super) unsafe fn give_up(mut node: u64, dead: &mut Dead) {
    while node != 0 {
        // SAFETY: the tree owned the objects of its nodes; whoever claims a node that is disowned does not read its
        // links, and this thread does not read them again.
        unsafe {
            let left = child(node, LEFT);
            if left != 0 {
                store(node + LEFT, child(left, RIGHT));
                store(left + RIGHT, node);
                node = left;
                continue;
            }
            let (next, of) = (child(node, RIGHT), object(node, node + OWNER));
            disown(node + OWNER);
            dead.give_up(of);
            node = next;
        }
    }
}

/// # Safety
///
/// `node` is a node, as for all of these.
unsafe fn child(node: u64, side: Side) -> u64 {
    // SAFETY: by the caller's contract.
    unsafe { load(node + side) }
}

/// # Safety
///
/// As for [`child`].
unsafe fn parent(node: u64) -> u64 {
    // SAFETY: by the caller's contract.
    unsafe { load(node + PARENT) & !RED }
}

/// # Safety
///
/// As for [`child`], or `node` is 0, which is black.
unsafe fn is_red(node: u64) -> bool {
    // SAFETY: by the caller's contract.
    node != 0 && unsafe { load(node + PARENT) } & RED != 0
}

/// # Safety
///
/// As for [`is_red`].
unsafe fn paint(node: u64, red: bool) {
    if node != 0 {
        // SAFETY: by the caller's contract.
        unsafe { store(node + PARENT, parent(node) | if red { RED } else { 0 }) };
    }
}

/// # Safety
///
/// As for [`child`].
unsafe fn set_parent(node: u64, above: u64) {
    // SAFETY: by the caller's contract.
    unsafe { store(node + PARENT, above | load(node + PARENT) & RED) };
}

/// Makes `below`, which may be 0, the child of a node.
///
/// # Safety
///
/// As for [`child`], both.
unsafe fn adopt(node: u64, side: Side, below: u64) {
    // SAFETY: by the caller's contract.
    unsafe {
        store(node + side, below);
        if below != 0 {
            set_parent(below, node);
        }
    }
}

/// Which child of `above` a node is; the missing one, if it is 0.
///
/// # Safety
///
/// `node` is a child of `above`; if it is 0, `above` has another one.
unsafe fn side_of(node: u64, above: u64) -> Side {
    // SAFETY: by the caller's contract.
    if unsafe { child(above, LEFT) } == node { LEFT } else { RIGHT }
}

/// The leftmost node from `node` down, or 0.
///
/// # Safety
///
/// `node` is a node of a tree, or 0.
unsafe fn lowest(mut node: u64) -> u64 {
    while node != 0 {
        // SAFETY: by the caller's contract.
        match unsafe { child(node, LEFT) } {
            0 => break,
            left => node = left,
        }
    }
    node
}
