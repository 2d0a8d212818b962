//! Kernel functions (kfuncs) that a runtime itself provides, whatever the types of the host.
//!
//! Programs that a runtime loads are linked against this table instead of a kernel's BTF. A row says what BTF would
//! say: name, parameters and result. The verifier derives a prototype from it, engines pass as many registers as
//! there are parameters, and checking mode checks arguments and results against it. A new function takes one row
//! here and an implementation in the runtime.
//!
//! The number of each function in a call is [`OWN_KFUNC`] plus its index in the table.

use crate::kfuncs::{Kfunc, kfunc_named};
use crate::{CGROUP, TASK};

/// A kernel function that a runtime provides. Its flags are in [`crate::KFUNCS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnKfunc {
    /// Its name.
    pub name: &'static str,
    /// Its parameters, in `r1` and up: five at most.
    pub params: &'static [OwnParam],
    /// Its result.
    pub returns: OwnReturn,
}

/// A parameter of an [`OwnKfunc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OwnParam {
    /// A number.
    Number,
    /// An iterator in the program's stack.
    Iterator(OwnIterator),
    /// Not looked at: Linux's verifier puts something there.
    Ignored,
    /// The number of a structure in the program's own BTF, constant. The engine puts [`crate::Linkage::types`] into
    /// [`crate::RunEnv::printed`] before the call.
    Type,
    /// An object that the program allocated and owns.
    Owned,
    /// An object that the program allocated and that counts its owners.
    Counted,
    /// The head of a list, whose lock is held.
    List,
    /// The root of a tree, whose lock is held.
    Tree,
    /// A node of the list or tree before it, in an object that the program owns or has borrowed.
    Node,
    /// A function of the program that compares two nodes.
    Less,
    /// A CPU mask. Functions that release it or count an owner take one that the program owns, others also one that it
    /// found in a map's value.
    Mask,
    /// An object of the runtime's machine, of that type ([`crate::TASK`], [`crate::CGROUP`]).
    Machine(u32),
    /// A map of the program.
    Map,
    /// A work queue in a map's value.
    Work,
    /// A function of the program that is called later, with the map, the key and the value.
    Later,
    /// The packet's context.
    Context,
    /// A dynptr, or room for one in the program's stack.
    Dynptr,
    /// A buffer of the program's own, or null. The next parameter is its size.
    Buffer,
    /// The size of the buffer before it in bytes, constant.
    Size,
    /// Memory to read, or null. The next parameter is its size in words; with more than these nothing is read.
    Words {
        /// The most words.
        most: u32,
    },
    /// The size of the memory before it in words of eight bytes.
    Count,
    /// Memory of that many bytes to write.
    Out(u32),
}

/// An iterator that a runtime provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnIterator {
    /// The name of its structure: the common prefix of its functions `_new`, `_next` and `_destroy`.
    pub name: &'static str,
    /// The size of its structure in bytes, a multiple of 8.
    pub bytes: u32,
    /// The size of an element in bytes.
    pub element: u32,
}

/// The result of an [`OwnKfunc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OwnReturn {
    /// Nothing: `r0` must not be read.
    Nothing,
    /// A number.
    Number,
    /// The address of an element of the iterator in `r1`, or null. The element may be read until the iterator is
    /// destroyed.
    ElementOrNull,
    /// The address of an allocated object or of a node in it, or null.
    Object,
    /// The address of a CPU mask, or null if the function takes none.
    Mask,
    /// The address of an object of the runtime's machine, of that type, or null.
    Machine(u32),
    /// The address of as many bytes as [`OwnParam::Size`] says, or null.
    BytesOrNull,
}

/// The iterator over a range of numbers.
const NUM: OwnIterator = OwnIterator { name: "bpf_iter_num", bytes: 8, element: 4 };
/// The iterator over the bits that are set in memory.
const BITS: OwnIterator = OwnIterator { name: "bpf_iter_bits", bytes: 16, element: 4 };

/// Every kernel function that a runtime provides.
pub static OWN_KFUNCS: [OwnKfunc; 81] = [
    own("bpf_rcu_read_lock", &[], OwnReturn::Nothing),
    own("bpf_rcu_read_unlock", &[], OwnReturn::Nothing),
    own("bpf_preempt_disable", &[], OwnReturn::Nothing),
    own("bpf_preempt_enable", &[], OwnReturn::Nothing),
    own("bpf_throw", &[OwnParam::Number], OwnReturn::Nothing),
    own(
        "bpf_iter_num_new",
        &[OwnParam::Iterator(NUM), OwnParam::Number, OwnParam::Number],
        OwnReturn::Number,
    ),
    own("bpf_iter_num_next", &[OwnParam::Iterator(NUM)], OwnReturn::ElementOrNull),
    own("bpf_iter_num_destroy", &[OwnParam::Iterator(NUM)], OwnReturn::Nothing),
    own("bpf_obj_new_impl", &[OwnParam::Type, OwnParam::Ignored], OwnReturn::Object),
    own("bpf_obj_drop_impl", &[OwnParam::Owned, OwnParam::Ignored], OwnReturn::Nothing),
    own("bpf_percpu_obj_new_impl", &[OwnParam::Type, OwnParam::Ignored], OwnReturn::Object),
    own("bpf_percpu_obj_drop_impl", &[OwnParam::Owned, OwnParam::Ignored], OwnReturn::Nothing),
    own("bpf_refcount_acquire_impl", &[OwnParam::Counted, OwnParam::Ignored], OwnReturn::Object),
    own("bpf_list_push_front_impl", PUSH, OwnReturn::Number),
    own("bpf_list_push_back_impl", PUSH, OwnReturn::Number),
    own("bpf_list_pop_front", &[OwnParam::List], OwnReturn::Object),
    own("bpf_list_pop_back", &[OwnParam::List], OwnReturn::Object),
    own("bpf_list_front", &[OwnParam::List], OwnReturn::Object),
    own("bpf_list_back", &[OwnParam::List], OwnReturn::Object),
    own(
        "bpf_rbtree_add_impl",
        &[OwnParam::Tree, OwnParam::Node, OwnParam::Less, OwnParam::Ignored, OwnParam::Ignored],
        OwnReturn::Number,
    ),
    own("bpf_rbtree_remove", &[OwnParam::Tree, OwnParam::Node], OwnReturn::Object),
    own("bpf_rbtree_first", &[OwnParam::Tree], OwnReturn::Object),
    own("bpf_rbtree_root", &[OwnParam::Tree], OwnReturn::Object),
    own("bpf_rbtree_left", &[OwnParam::Tree, OwnParam::Node], OwnReturn::Object),
    own("bpf_rbtree_right", &[OwnParam::Tree, OwnParam::Node], OwnReturn::Object),
    own("bpf_dynptr_from_skb", FROM_PACKET, OwnReturn::Number),
    own("bpf_dynptr_from_xdp", FROM_PACKET, OwnReturn::Number),
    own("bpf_dynptr_slice", SLICE, OwnReturn::BytesOrNull),
    own("bpf_dynptr_slice_rdwr", SLICE, OwnReturn::BytesOrNull),
    own("bpf_dynptr_adjust", &[OwnParam::Dynptr, OwnParam::Number, OwnParam::Number], OwnReturn::Number),
    own("bpf_dynptr_is_null", &[OwnParam::Dynptr], OwnReturn::Number),
    own("bpf_dynptr_is_rdonly", &[OwnParam::Dynptr], OwnReturn::Number),
    own("bpf_dynptr_size", &[OwnParam::Dynptr], OwnReturn::Number),
    own("bpf_dynptr_clone", &[OwnParam::Dynptr, OwnParam::Dynptr], OwnReturn::Number),
    own(
        "bpf_iter_bits_new",
        &[OwnParam::Iterator(BITS), OwnParam::Words { most: 511 }, OwnParam::Count],
        OwnReturn::Number,
    ),
    own("bpf_iter_bits_next", &[OwnParam::Iterator(BITS)], OwnReturn::ElementOrNull),
    own("bpf_iter_bits_destroy", &[OwnParam::Iterator(BITS)], OwnReturn::Nothing),
    own("bpf_xdp_metadata_rx_timestamp", &[OwnParam::Context, OwnParam::Out(8)], OwnReturn::Number),
    own(
        "bpf_xdp_metadata_rx_hash",
        &[OwnParam::Context, OwnParam::Out(4), OwnParam::Out(4)],
        OwnReturn::Number,
    ),
    own(
        "bpf_xdp_metadata_rx_vlan_tag",
        &[OwnParam::Context, OwnParam::Out(2), OwnParam::Out(2)],
        OwnReturn::Number,
    ),
    own("bpf_arena_alloc_pages", ALLOC_PAGES, OwnReturn::Number),
    own("bpf_arena_free_pages", &[OwnParam::Map, OwnParam::Number, OwnParam::Number], OwnReturn::Nothing),
    own("bpf_wq_init", &[OwnParam::Work, OwnParam::Map, OwnParam::Number], OwnReturn::Number),
    own(
        "bpf_wq_set_callback_impl",
        &[OwnParam::Work, OwnParam::Later, OwnParam::Number, OwnParam::Ignored],
        OwnReturn::Number,
    ),
    own("bpf_wq_start", &[OwnParam::Work, OwnParam::Number], OwnReturn::Number),
    own("bpf_map_sum_elem_count", &[OwnParam::Map], OwnReturn::Number),
    own("bpf_cpumask_create", &[], OwnReturn::Mask),
    own("bpf_cpumask_acquire", MASK, OwnReturn::Mask),
    own("bpf_cpumask_release", MASK, OwnReturn::Nothing),
    own("bpf_cpumask_first", MASK, OwnReturn::Number),
    own("bpf_cpumask_first_zero", MASK, OwnReturn::Number),
    own("bpf_cpumask_first_and", TWO_MASKS, OwnReturn::Number),
    own("bpf_cpumask_set_cpu", CPU_AND_MASK, OwnReturn::Nothing),
    own("bpf_cpumask_clear_cpu", CPU_AND_MASK, OwnReturn::Nothing),
    own("bpf_cpumask_test_cpu", CPU_AND_MASK, OwnReturn::Number),
    own("bpf_cpumask_test_and_set_cpu", CPU_AND_MASK, OwnReturn::Number),
    own("bpf_cpumask_test_and_clear_cpu", CPU_AND_MASK, OwnReturn::Number),
    own("bpf_cpumask_setall", MASK, OwnReturn::Nothing),
    own("bpf_cpumask_clear", MASK, OwnReturn::Nothing),
    own("bpf_cpumask_and", THREE_MASKS, OwnReturn::Number),
    own("bpf_cpumask_or", THREE_MASKS, OwnReturn::Nothing),
    own("bpf_cpumask_xor", THREE_MASKS, OwnReturn::Nothing),
    own("bpf_cpumask_equal", TWO_MASKS, OwnReturn::Number),
    own("bpf_cpumask_intersects", TWO_MASKS, OwnReturn::Number),
    own("bpf_cpumask_subset", TWO_MASKS, OwnReturn::Number),
    own("bpf_cpumask_empty", MASK, OwnReturn::Number),
    own("bpf_cpumask_full", MASK, OwnReturn::Number),
    own("bpf_cpumask_copy", TWO_MASKS, OwnReturn::Nothing),
    own("bpf_cpumask_any_distribute", MASK, OwnReturn::Number),
    own("bpf_cpumask_any_and_distribute", TWO_MASKS, OwnReturn::Number),
    own("bpf_cpumask_weight", MASK, OwnReturn::Number),
    own("bpf_task_acquire", A_TASK, OwnReturn::Machine(TASK)),
    own("bpf_task_release", A_TASK, OwnReturn::Nothing),
    own("bpf_task_from_pid", &[OwnParam::Number], OwnReturn::Machine(TASK)),
    own("bpf_task_from_vpid", &[OwnParam::Number], OwnReturn::Machine(TASK)),
    own("bpf_task_under_cgroup", &[OwnParam::Machine(TASK), OwnParam::Machine(CGROUP)], OwnReturn::Number),
    own("bpf_task_get_cgroup1", &[OwnParam::Machine(TASK), OwnParam::Number], OwnReturn::Machine(CGROUP)),
    own("bpf_cgroup_acquire", A_CGROUP, OwnReturn::Machine(CGROUP)),
    own("bpf_cgroup_release", A_CGROUP, OwnReturn::Nothing),
    own("bpf_cgroup_ancestor", &[OwnParam::Machine(CGROUP), OwnParam::Number], OwnReturn::Machine(CGROUP)),
    own("bpf_cgroup_from_id", &[OwnParam::Number], OwnReturn::Machine(CGROUP)),
];

const A_TASK: &[OwnParam] = &[OwnParam::Machine(TASK)];
const A_CGROUP: &[OwnParam] = &[OwnParam::Machine(CGROUP)];
const MASK: &[OwnParam] = &[OwnParam::Mask];
const TWO_MASKS: &[OwnParam] = &[OwnParam::Mask, OwnParam::Mask];
const THREE_MASKS: &[OwnParam] = &[OwnParam::Mask, OwnParam::Mask, OwnParam::Mask];
const CPU_AND_MASK: &[OwnParam] = &[OwnParam::Number, OwnParam::Mask];

/// The context, flags, and room for the dynptr.
const FROM_PACKET: &[OwnParam] = &[OwnParam::Context, OwnParam::Number, OwnParam::Dynptr];
/// A dynptr, an offset in it, a buffer for a copy and the size.
const SLICE: &[OwnParam] = &[OwnParam::Dynptr, OwnParam::Number, OwnParam::Buffer, OwnParam::Size];

/// The arena, an address, a number of pages, a memory node and flags.
const ALLOC_PAGES: &[OwnParam] =
    &[OwnParam::Map, OwnParam::Number, OwnParam::Number, OwnParam::Number, OwnParam::Number];

/// A list, a node, and what Linux's verifier adds.
const PUSH: &[OwnParam] = &[OwnParam::List, OwnParam::Node, OwnParam::Ignored, OwnParam::Ignored];

/// The number of the first of [`OWN_KFUNCS`]. Other kernel functions have BTF type numbers, which stay far below
/// it.
pub const OWN_KFUNC: u32 = 1 << 30;

/// The number of the runtime's own function of that name.
pub fn own_kfunc_number(name: &str) -> Option<u32> {
    let at = OWN_KFUNCS.iter().position(|own| own.name == name)?;
    Some(OWN_KFUNC + at as u32)
}

/// The runtime's own function of that number.
pub fn own_kfunc(number: u32) -> Option<&'static OwnKfunc> {
    OWN_KFUNCS.get(number.checked_sub(OWN_KFUNC)? as usize)
}

impl OwnKfunc {
    /// Its flags and which program types may call it.
    pub fn known(&self) -> Option<&'static Kfunc> {
        kfunc_named(self.name)
    }

    /// Whether it makes objects: of a type of the program's own, or CPU masks.
    pub fn allocates(&self) -> bool {
        self.params.contains(&OwnParam::Type) || (self.returns == OwnReturn::Mask && self.params.is_empty())
    }

    /// Whether it takes a function of the program that is called later.
    pub fn defers(&self) -> bool {
        self.params.contains(&OwnParam::Later)
    }

    /// Whether it calls a function of the program.
    pub fn calls_back(&self) -> bool {
        self.params.contains(&OwnParam::Less)
    }

    /// The iterator that it creates, advances or destroys, if any.
    pub fn iterator(&self) -> Option<OwnIterator> {
        match self.params.first() {
            Some(OwnParam::Iterator(iterator)) => Some(*iterator),
            _ => None,
        }
    }
}

const fn own(name: &'static str, params: &'static [OwnParam], returns: OwnReturn) -> OwnKfunc {
    OwnKfunc { name, params, returns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KfuncFlags as F;

    #[test]
    fn own_functions_are_found_by_name_and_by_number() {
        for own in &OWN_KFUNCS {
            let number = own_kfunc_number(own.name).expect("listed");
            assert_eq!(own_kfunc(number), Some(own));
            assert_eq!(own.known().map(|kfunc| kfunc.name), Some(own.name));
            assert!(own.params.len() <= 5, "{}", own.name);
        }
        assert_eq!(own_kfunc_number("bpf_get_file_xattr"), None);
        let behind = OWN_KFUNC + OWN_KFUNCS.len() as u32;
        assert_eq!((own_kfunc(OWN_KFUNC - 1), own_kfunc(behind)), (None, None));
    }

    #[test]
    fn iterators_have_three_functions_whose_flags_and_results_agree() {
        for own in &OWN_KFUNCS {
            let flags = own.known().expect("known").flags;
            let kinds = [F::ITER_NEW, F::ITER_NEXT, F::ITER_DESTROY].map(|flag| flags.has(flag));
            assert_eq!(kinds.contains(&true), own.iterator().is_some(), "{}", own.name);
            assert_eq!(kinds[1], own.returns == OwnReturn::ElementOrNull, "{}", own.name);
            if let Some(iterator) = own.iterator() {
                assert!(iterator.bytes > 0 && iterator.bytes.is_multiple_of(8), "{iterator:?}");
                for function in ["new", "next", "destroy"] {
                    let found =
                        own_kfunc_number(&format!("{}_{function}", iterator.name)).and_then(own_kfunc);
                    assert_eq!(found.and_then(OwnKfunc::iterator), Some(iterator));
                }
            }
        }
    }
}
