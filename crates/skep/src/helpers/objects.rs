//! Objects that programs allocate: `bpf_obj_new` and its kin, lists, trees, kept pointers, objects per CPU.
//!
//! The structures are in [`skep_maps::objects`]. What an address is, who owns it and which lock is held is what the
//! verifier proved. Programs name the types of new objects by numbers of their own BTF: [`Types`] has the layout of
//! each, and the engine passes its address ([`skep_abi::Linkage::types`]), because a tail call may have led to a
//! program of another object file.

use super::callback::call_back;
use skep_abi::RunEnv;
use skep_maps::objects::{self, End, Layout, List, Tree};
use std::sync::Arc;

/// The layouts of the types that the programs of one load allocate.
#[derive(Debug, Default)]
pub(crate) struct Types(Vec<((u32, bool), Arc<Layout>)>);

impl Types {
    /// By the number of the type and whether it is per CPU, ascending.
    pub(crate) fn new(layouts: Vec<((u32, bool), Arc<Layout>)>) -> Self {
        debug_assert!(layouts.is_sorted_by_key(|(ty, _)| *ty));
        Self(layouts)
    }

    fn find(&self, ty: (u32, bool)) -> Option<&Arc<Layout>> {
        let at = self.0.binary_search_by_key(&ty, |(ty, _)| *ty).ok()?;
        Some(&self.0[at].1)
    }
}

/// # Safety
///
/// As for all functions here: the environment of the run in progress, whose engine has set `printed`.
unsafe fn allocate(ty: u64, per_cpu: bool, env: *mut RunEnv) -> u64 {
    // SAFETY: by the caller's contract; a run keeps its programs' linkage, which keeps its types.
    unsafe {
        let types = std::mem::take(&mut (*env).printed);
        let types = std::ptr::with_exposed_provenance::<Types>(types as usize).as_ref();
        let layout = types.and_then(|types| types.find((ty as u32, per_cpu)));
        layout.map_or(0, |layout| layout.alloc((*env).cpu))
    }
}

/// `void *bpf_obj_new_impl(u64 local_type_id, void *meta)`.
#[inline]
pub(super) unsafe fn obj_new(ty: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: by the caller's contract.
    unsafe { allocate(ty, false, env) }
}

/// `void *bpf_percpu_obj_new_impl(u64 local_type_id, void *meta)`.
#[inline]
pub(super) unsafe fn percpu_obj_new(ty: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: by the caller's contract.
    unsafe { allocate(ty, true, env) }
}

/// `void bpf_obj_drop_impl(void *object, void *meta)`, also for objects per CPU.
#[inline]
pub(super) unsafe fn obj_drop(object: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the program owned the object.
    unsafe { objects::release(object, (*env).cpu) };
    0
}

/// `void *bpf_refcount_acquire_impl(void *object, void *meta)`.
#[inline]
pub(super) unsafe fn refcount_acquire(object: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: an object that counts its owners; it is in use or was freed in this section.
    if unsafe { objects::acquire(object) } { object } else { 0 }
}

/// What a function that puts an object somewhere returns if it is somewhere already.
fn inserted(done: bool) -> u64 {
    if done { 0 } else { super::errno::EINVAL }
}

macro_rules! ends {
    ($($end:ident: $push:ident $pop:ident $peek:ident;)*) => {$(
        /// `int bpf_list_push_*_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, u64 off)`.
        #[inline]
        pub(super) unsafe fn $push(head: u64, node: u64, env: *mut RunEnv) -> u64 {
            // SAFETY: the list's lock is held, and the program owned the node's object.
            inserted(unsafe { List::at(head).push(End::$end, node, (*env).cpu) })
        }

        /// `struct bpf_list_node *bpf_list_pop_*(struct bpf_list_head *head)`.
        #[inline]
        pub(super) unsafe fn $pop(head: u64, _: *mut RunEnv) -> u64 {
            // SAFETY: the list's lock is held.
            unsafe { List::at(head) }.pop(End::$end)
        }

        /// `struct bpf_list_node *bpf_list_front(struct bpf_list_head *head)`, and `bpf_list_back`.
        #[inline]
        pub(super) unsafe fn $peek(head: u64, _: *mut RunEnv) -> u64 {
            // SAFETY: the list's lock is held.
            unsafe { List::at(head) }.end(End::$end)
        }
    )*};
}

ends! {
    Front: push_front pop_front front;
    Back: push_back pop_back back;
}

/// `int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
/// bool (*less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta, u64 off)`.
pub(super) unsafe fn rbtree_add(root: u64, node: u64, less: u64, env: *mut RunEnv) -> u64 {
    let is_less = |a, b| {
        // SAFETY: the program passed this function, which takes two nodes.
        let result = unsafe { call_back(less, [a, b, 0, 0, 0], env) };
        // A boolean: C leaves the other bits unspecified.
        result as u8 != 0
    };
    // SAFETY: the tree's lock is held, and the program owned the node's object; the comparing function changes no
    // tree.
    inserted(unsafe { Tree::at(root).add(node, (*env).cpu, is_less) })
}

/// `struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node)`.
#[inline]
pub(super) unsafe fn rbtree_remove(root: u64, node: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the tree's lock is held, under which the program found the node.
    if unsafe { Tree::at(root).remove(node) } { node } else { 0 }
}

/// `struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root)`.
#[inline]
pub(super) unsafe fn rbtree_first(root: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the tree's lock is held.
    unsafe { Tree::at(root) }.first()
}

/// `struct bpf_rb_node *bpf_rbtree_root(struct bpf_rb_root *root)`.
#[inline]
pub(super) unsafe fn rbtree_root(root: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the tree's lock is held.
    unsafe { Tree::at(root) }.top()
}

/// `struct bpf_rb_node *bpf_rbtree_left(struct bpf_rb_root *root, struct bpf_rb_node *node)`.
#[inline]
pub(super) unsafe fn rbtree_left(root: u64, node: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the tree's lock is held, under which the program found the node.
    unsafe { Tree::at(root).children(node).0 }
}

/// `struct bpf_rb_node *bpf_rbtree_right(struct bpf_rb_root *root, struct bpf_rb_node *node)`.
#[inline]
pub(super) unsafe fn rbtree_right(root: u64, node: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the tree's lock is held, under which the program found the node.
    unsafe { Tree::at(root).children(node).1 }
}

/// `void *bpf_kptr_xchg(void *dst, void *ptr)`.
#[inline]
pub(super) unsafe fn kptr_xchg(slot: u64, object: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: a kept pointer, and null or an object that the program owned.
    unsafe { objects::exchange(slot, object) }
}

/// `void *bpf_per_cpu_ptr(const void *percpu_ptr, u32 cpu)`. Variables of a kernel's are refused at load, so this is an
/// object.
#[inline]
pub(super) unsafe fn per_cpu_ptr(object: u64, cpu: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: an object per CPU that was found in this section.
    unsafe { objects::of_cpu(object, cpu as u32) }
}

/// `void *bpf_this_cpu_ptr(const void *percpu_ptr)`.
#[inline]
pub(super) unsafe fn this_cpu_ptr(object: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: an object per CPU that was found in this section; every CPU has a copy.
    unsafe { objects::of_cpu(object, (*env).cpu) }
}
