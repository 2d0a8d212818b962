//! The kernel functions that this runtime itself provides, one for each row of [`skep_abi::OWN_KFUNCS`].
//!
//! They are called like helpers: the verifier has proved that the arguments match the row's parameters.

use super::{arena, bits, cpumask, dynptr, iterators, machine, map, objects, sections, timer, xdp};
use skep_abi::{HelperFn, OWN_KFUNC, RunEnv};

/// The implementations, in the order of the rows.
static OWN: [(&str, HelperFn); 81] = [
    ("bpf_rcu_read_lock", helper!(sections::enter, 0)),
    ("bpf_rcu_read_unlock", helper!(sections::leave, 0)),
    ("bpf_preempt_disable", helper!(sections::enter, 0)),
    ("bpf_preempt_enable", helper!(sections::leave, 0)),
    ("bpf_throw", helper!(throw, 0)),
    ("bpf_iter_num_new", helper!(iterators::num_new, 3)),
    ("bpf_iter_num_next", helper!(iterators::num_next, 1)),
    ("bpf_iter_num_destroy", helper!(iterators::num_destroy, 1)),
    ("bpf_obj_new_impl", helper!(objects::obj_new, 1)),
    ("bpf_obj_drop_impl", helper!(objects::obj_drop, 1)),
    ("bpf_percpu_obj_new_impl", helper!(objects::percpu_obj_new, 1)),
    ("bpf_percpu_obj_drop_impl", helper!(objects::obj_drop, 1)),
    ("bpf_refcount_acquire_impl", helper!(objects::refcount_acquire, 1)),
    ("bpf_list_push_front_impl", helper!(objects::push_front, 2)),
    ("bpf_list_push_back_impl", helper!(objects::push_back, 2)),
    ("bpf_list_pop_front", helper!(objects::pop_front, 1)),
    ("bpf_list_pop_back", helper!(objects::pop_back, 1)),
    ("bpf_list_front", helper!(objects::front, 1)),
    ("bpf_list_back", helper!(objects::back, 1)),
    ("bpf_rbtree_add_impl", helper!(objects::rbtree_add, 3)),
    ("bpf_rbtree_remove", helper!(objects::rbtree_remove, 2)),
    ("bpf_rbtree_first", helper!(objects::rbtree_first, 1)),
    ("bpf_rbtree_root", helper!(objects::rbtree_root, 1)),
    ("bpf_rbtree_left", helper!(objects::rbtree_left, 2)),
    ("bpf_rbtree_right", helper!(objects::rbtree_right, 2)),
    ("bpf_dynptr_from_skb", helper!(dynptr::from_skb, 3)),
    ("bpf_dynptr_from_xdp", helper!(dynptr::from_xdp, 3)),
    ("bpf_dynptr_slice", helper!(dynptr::slice, 4)),
    ("bpf_dynptr_slice_rdwr", helper!(dynptr::slice_rdwr, 4)),
    ("bpf_dynptr_adjust", helper!(dynptr::adjust, 3)),
    ("bpf_dynptr_is_null", helper!(dynptr::is_null, 1)),
    ("bpf_dynptr_is_rdonly", helper!(dynptr::is_rdonly, 1)),
    ("bpf_dynptr_size", helper!(dynptr::size, 1)),
    ("bpf_dynptr_clone", helper!(dynptr::clone, 2)),
    ("bpf_iter_bits_new", helper!(bits::new, 3)),
    ("bpf_iter_bits_next", helper!(bits::next, 1)),
    ("bpf_iter_bits_destroy", helper!(bits::destroy, 1)),
    ("bpf_xdp_metadata_rx_timestamp", helper!(xdp::rx_timestamp, 2)),
    ("bpf_xdp_metadata_rx_hash", helper!(xdp::rx_hash, 3)),
    ("bpf_xdp_metadata_rx_vlan_tag", helper!(xdp::rx_vlan_tag, 3)),
    ("bpf_arena_alloc_pages", helper!(arena::alloc_pages, 5)),
    ("bpf_arena_free_pages", helper!(arena::free_pages, 3)),
    ("bpf_wq_init", helper!(timer::work_init, 3)),
    ("bpf_wq_set_callback_impl", helper!(timer::work_callback, 3)),
    ("bpf_wq_start", helper!(timer::work_start, 2)),
    ("bpf_map_sum_elem_count", helper!(map::sum_elem_count, 1)),
    ("bpf_cpumask_create", helper!(cpumask::create, 0)),
    ("bpf_cpumask_acquire", helper!(cpumask::acquire, 1)),
    ("bpf_cpumask_release", helper!(cpumask::release, 1)),
    ("bpf_cpumask_first", helper!(cpumask::first, 1)),
    ("bpf_cpumask_first_zero", helper!(cpumask::first_zero, 1)),
    ("bpf_cpumask_first_and", helper!(cpumask::first_and, 2)),
    ("bpf_cpumask_set_cpu", helper!(cpumask::set_cpu, 2)),
    ("bpf_cpumask_clear_cpu", helper!(cpumask::clear_cpu, 2)),
    ("bpf_cpumask_test_cpu", helper!(cpumask::test_cpu, 2)),
    ("bpf_cpumask_test_and_set_cpu", helper!(cpumask::test_and_set_cpu, 2)),
    ("bpf_cpumask_test_and_clear_cpu", helper!(cpumask::test_and_clear_cpu, 2)),
    ("bpf_cpumask_setall", helper!(cpumask::setall, 1)),
    ("bpf_cpumask_clear", helper!(cpumask::clear, 1)),
    ("bpf_cpumask_and", helper!(cpumask::and, 3)),
    ("bpf_cpumask_or", helper!(cpumask::or, 3)),
    ("bpf_cpumask_xor", helper!(cpumask::xor, 3)),
    ("bpf_cpumask_equal", helper!(cpumask::equal, 2)),
    ("bpf_cpumask_intersects", helper!(cpumask::intersects, 2)),
    ("bpf_cpumask_subset", helper!(cpumask::subset, 2)),
    ("bpf_cpumask_empty", helper!(cpumask::empty, 1)),
    ("bpf_cpumask_full", helper!(cpumask::full, 1)),
    ("bpf_cpumask_copy", helper!(cpumask::copy, 2)),
    ("bpf_cpumask_any_distribute", helper!(cpumask::any_distribute, 1)),
    ("bpf_cpumask_any_and_distribute", helper!(cpumask::any_and_distribute, 2)),
    ("bpf_cpumask_weight", helper!(cpumask::weight, 1)),
    ("bpf_task_acquire", helper!(machine::acquire, 1)),
    ("bpf_task_release", helper!(machine::release, 1)),
    ("bpf_task_from_pid", helper!(machine::task_from_pid, 1)),
    ("bpf_task_from_vpid", helper!(machine::task_from_pid, 1)),
    ("bpf_task_under_cgroup", helper!(machine::task_under_cgroup, 2)),
    ("bpf_task_get_cgroup1", helper!(machine::task_cgroup1, 2)),
    ("bpf_cgroup_acquire", helper!(machine::acquire, 1)),
    ("bpf_cgroup_release", helper!(machine::release, 1)),
    ("bpf_cgroup_ancestor", helper!(machine::cgroup_ancestor, 2)),
    ("bpf_cgroup_from_id", helper!(machine::cgroup_from_id, 1)),
];

/// The implementations with the numbers used in calls, ascending.
pub(crate) fn provided() -> Vec<(u32, HelperFn)> {
    (OWN_KFUNC..).zip(OWN.map(|(_, call)| call)).collect()
}

/// `bpf_throw`: engines implement it, since a called function cannot leave its caller. This entry tells them that
/// the runtime provides it.
#[inline]
unsafe fn throw(_: *mut RunEnv) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use skep_abi::OWN_KFUNCS;

    #[test]
    fn every_row_has_its_implementation() {
        assert_eq!(super::OWN.map(|(name, _)| name), OWN_KFUNCS.map(|own| own.name));
    }
}
