//! Functions of the host that programs may call by name (kfuncs).
//!
//! The host's BTF says what they take and return. This table has the rest: which program types may call them, and
//! their registration flags as Linux's documentation describes them.

/// A function of the host that programs may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kfunc {
    /// Its name.
    pub name: &'static str,
    /// What BTF does not say about it.
    pub flags: KfuncFlags,
    /// The numbers of the program types that may call it; empty if all may.
    pub types: &'static [u32],
    /// What it does beyond taking arguments and returning a result.
    pub special: SpecialKfunc,
}

impl Kfunc {
    /// Whether programs of the type of that number may call it.
    pub fn is_for(&self, program_type: Option<u32>) -> bool {
        self.types.is_empty() || program_type.is_some_and(|number| self.types.contains(&number))
    }
}

/// The flags of a function of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KfuncFlags(u32);

impl KfuncFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Its result must be released.
    pub const ACQUIRE: Self = Self(1);
    /// It releases its argument.
    pub const RELEASE: Self = Self(1 << 1);
    /// Its result may be null.
    pub const RET_NULL: Self = Self(1 << 2);
    /// Its arguments that are objects must be trusted, and none may be null.
    pub const TRUSTED_ARGS: Self = Self(1 << 3);
    /// It may sleep.
    pub const SLEEPABLE: Self = Self(1 << 4);
    /// It is destructive: it does lasting harm to the system.
    pub const DESTRUCTIVE: Self = Self(1 << 5);
    /// Its arguments that are objects must be trusted or protected by a read-side critical section.
    pub const RCU: Self = Self(1 << 6);
    /// It creates an iterator.
    pub const ITER_NEW: Self = Self(1 << 7);
    /// It gets the next element of an iterator.
    pub const ITER_NEXT: Self = Self(1 << 8);
    /// It destroys an iterator.
    pub const ITER_DESTROY: Self = Self(1 << 9);
    /// The elements of its iterator are valid only within a read-side critical section.
    pub const RCU_PROTECTED: Self = Self(1 << 10);
    /// Only iterator programs may call it.
    pub const FROM_ITERATORS: Self = Self(1 << 11);
    /// Its iterator may take long, so only iterator programs, security hooks and sleepable programs may call it.
    pub const SLOW: Self = Self(1 << 12);
    /// Its result points to a number that may be read.
    pub const RET_MEMORY: Self = Self(1 << 13);
    /// It may be called while a lock is held.
    pub const IN_LOCK: Self = Self(1 << 14);
    /// It gives its node to its list or tree.
    pub const INSERTS: Self = Self(1 << 15);
    /// Its object is one per CPU.
    pub const PER_CPU: Self = Self(1 << 16);
    /// It calls a function of the program before it returns: [`crate::Callback::Less`].
    pub const CALLS_BACK: Self = Self(1 << 17);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a function does beyond taking arguments and returning a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpecialKfunc {
    /// Nothing.
    None,
    /// Enters a read-side critical section.
    ReadLock,
    /// Leaves a read-side critical section.
    ReadUnlock,
    /// Disables preemption.
    PreemptDisable,
    /// Enables preemption.
    PreemptEnable,
    /// Returns the host's own structure behind the program's context.
    CastToContext,
    /// Returns an address as an untrusted object of a type given by number.
    ReadOnlyCast,
    /// Makes a dynptr over a socket buffer.
    DynptrFromSkb,
    /// Makes a dynptr over an XDP packet.
    DynptrFromXdp,
    /// Returns a dynptr slice to read, or a copy of the data in the program's buffer.
    DynptrSlice,
    /// Returns a dynptr slice to read and write, or a copy of the data in the program's buffer.
    DynptrSliceWritable,
    /// Makes a second dynptr over the same memory.
    DynptrClone,
    /// Allocates an object of a type of the program's own BTF.
    Allocate,
    /// Frees such an object.
    Drop,
    /// Counts one more owner of such an object.
    Share,
    /// Works on a list or tree of such objects.
    Collection,
    /// Initialises a `struct bpf_wq` in a map's value.
    WorkInit,
    /// Sets the function that it calls.
    WorkCallback,
    /// Has it called.
    WorkStart,
    /// Ends the program.
    Throw,
    /// Only programs bound to a device may call it.
    DeviceBound,
}

/// Every function that skep knows, sorted by name.
pub static KFUNCS: &[Kfunc] = &[
    kfunc("bpf_arena_alloc_pages", F::TRUSTED_ARGS.and(F::SLEEPABLE), ALL),
    kfunc("bpf_arena_free_pages", F::TRUSTED_ARGS.and(F::SLEEPABLE), ALL),
    kfunc("bpf_cast_to_kern_ctx", F::NONE, ALL).special(S::CastToContext),
    kfunc("bpf_cgroup_acquire", GET_RCU, GENERIC),
    kfunc("bpf_cgroup_ancestor", GET_RCU, GENERIC),
    kfunc("bpf_cgroup_from_id", GET, GENERIC),
    kfunc("bpf_cgroup_read_xattr", F::RCU, LSM),
    kfunc("bpf_cgroup_release", F::RELEASE, GENERIC),
    kfunc("bpf_copy_from_user_str", F::SLEEPABLE, ALL),
    kfunc("bpf_copy_from_user_task_str", F::SLEEPABLE, ALL),
    kfunc("bpf_cpumask_acquire", F::ACQUIRE.and(F::TRUSTED_ARGS), CPUMASK),
    kfunc("bpf_cpumask_and", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_any_and_distribute", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_any_distribute", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_clear", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_clear_cpu", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_copy", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_create", GET, CPUMASK),
    kfunc("bpf_cpumask_empty", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_equal", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_first", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_first_and", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_first_zero", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_full", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_intersects", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_or", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_populate", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_release", F::RELEASE, CPUMASK),
    kfunc("bpf_cpumask_set_cpu", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_setall", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_subset", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_test_and_clear_cpu", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_test_and_set_cpu", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_test_cpu", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_weight", F::RCU, CPUMASK),
    kfunc("bpf_cpumask_xor", F::RCU, CPUMASK),
    kfunc("bpf_crypto_ctx_acquire", GET_RCU, SYSCALL),
    kfunc("bpf_crypto_ctx_create", GET.and(F::SLEEPABLE), SYSCALL),
    kfunc("bpf_crypto_ctx_release", F::RELEASE, SYSCALL),
    kfunc("bpf_crypto_decrypt", F::RCU, TC_XDP),
    kfunc("bpf_crypto_encrypt", F::RCU, TC_XDP),
    kfunc("bpf_ct_change_status", F::TRUSTED_ARGS, TC_XDP),
    kfunc("bpf_ct_change_timeout", F::TRUSTED_ARGS, TC_XDP),
    kfunc("bpf_ct_insert_entry", GET.and(F::RELEASE), TC_XDP),
    kfunc("bpf_ct_release", F::RELEASE, TC_XDP),
    kfunc("bpf_ct_set_nat_info", F::NONE, TC_XDP),
    kfunc("bpf_ct_set_status", F::TRUSTED_ARGS, TC_XDP),
    kfunc("bpf_ct_set_timeout", F::TRUSTED_ARGS, TC_XDP),
    kfunc("bpf_dynptr_adjust", F::NONE, ALL),
    kfunc("bpf_dynptr_clone", F::NONE, ALL).special(S::DynptrClone),
    kfunc("bpf_dynptr_copy", F::NONE, ALL),
    kfunc("bpf_dynptr_from_skb", F::TRUSTED_ARGS, SKB).special(S::DynptrFromSkb),
    kfunc("bpf_dynptr_from_xdp", F::NONE, XDP).special(S::DynptrFromXdp),
    kfunc("bpf_dynptr_is_null", F::NONE, ALL),
    kfunc("bpf_dynptr_is_rdonly", F::NONE, ALL),
    kfunc("bpf_dynptr_memset", F::NONE, ALL),
    kfunc("bpf_dynptr_size", F::NONE, ALL),
    kfunc("bpf_dynptr_slice", F::RET_NULL, ALL).special(S::DynptrSlice),
    kfunc("bpf_dynptr_slice_rdwr", F::RET_NULL, ALL).special(S::DynptrSliceWritable),
    kfunc("bpf_get_dentry_xattr", SLEEPS, LSM),
    kfunc("bpf_get_file_xattr", SLEEPS, LSM),
    kfunc("bpf_get_fsverity_digest", SLEEPS, LSM),
    kfunc("bpf_get_kmem_cache", F::RET_NULL, TRACING),
    kfunc("bpf_get_task_exe_file", GET.and(F::TRUSTED_ARGS), LSM),
    kfunc("bpf_iter_bits_destroy", F::ITER_DESTROY, ALL),
    kfunc("bpf_iter_bits_new", F::ITER_NEW, ALL),
    kfunc("bpf_iter_bits_next", NEXT, ALL),
    kfunc("bpf_iter_css_destroy", F::ITER_DESTROY, ALL),
    kfunc("bpf_iter_css_new", NEW_TRUSTED.and(F::RCU_PROTECTED), ALL),
    kfunc("bpf_iter_css_next", NEXT, ALL),
    kfunc("bpf_iter_css_task_destroy", F::ITER_DESTROY, ALL),
    kfunc("bpf_iter_css_task_new", NEW_TRUSTED.and(F::SLOW), ALL),
    kfunc("bpf_iter_css_task_next", NEXT, ALL),
    kfunc("bpf_iter_num_destroy", F::ITER_DESTROY, ALL),
    kfunc("bpf_iter_num_new", F::ITER_NEW, ALL),
    kfunc("bpf_iter_num_next", NEXT, ALL),
    kfunc("bpf_iter_task_destroy", F::ITER_DESTROY, ALL),
    kfunc("bpf_iter_task_new", NEW_TRUSTED.and(F::RCU_PROTECTED), ALL),
    kfunc("bpf_iter_task_next", NEXT, ALL),
    kfunc("bpf_iter_task_vma_destroy", F::ITER_DESTROY, ALL),
    kfunc("bpf_iter_task_vma_new", F::ITER_NEW.and(F::RCU), ALL),
    kfunc("bpf_iter_task_vma_next", NEXT, ALL),
    kfunc("bpf_key_put", F::RELEASE, KEYS),
    kfunc("bpf_list_back", PEEK, GENERIC).special(S::Collection),
    kfunc("bpf_list_front", PEEK, GENERIC).special(S::Collection),
    kfunc("bpf_list_pop_back", TAKE, GENERIC).special(S::Collection),
    kfunc("bpf_list_pop_front", TAKE, GENERIC).special(S::Collection),
    kfunc("bpf_list_push_back_impl", INSERT, GENERIC).special(S::Collection),
    kfunc("bpf_list_push_front_impl", INSERT, GENERIC).special(S::Collection),
    kfunc("bpf_lookup_system_key", GET, KEYS),
    kfunc("bpf_lookup_user_key", GET.and(F::SLEEPABLE), KEYS),
    kfunc("bpf_map_sum_elem_count", F::TRUSTED_ARGS, ALL),
    kfunc("bpf_obj_drop_impl", F::RELEASE, GENERIC).special(S::Drop),
    kfunc("bpf_obj_new_impl", GET, GENERIC).special(S::Allocate),
    kfunc("bpf_path_d_path", F::TRUSTED_ARGS, LSM),
    kfunc("bpf_percpu_obj_drop_impl", F::RELEASE.and(F::PER_CPU), GENERIC).special(S::Drop),
    kfunc("bpf_percpu_obj_new_impl", GET.and(F::PER_CPU), GENERIC).special(S::Allocate),
    kfunc("bpf_preempt_disable", F::NONE, ALL).special(S::PreemptDisable),
    kfunc("bpf_preempt_enable", F::NONE, ALL).special(S::PreemptEnable),
    kfunc("bpf_put_file", F::RELEASE, LSM),
    kfunc("bpf_rbtree_add_impl", INSERT.and(F::CALLS_BACK), GENERIC).special(S::Collection),
    kfunc("bpf_rbtree_first", PEEK, GENERIC).special(S::Collection),
    kfunc("bpf_rbtree_left", PEEK, GENERIC).special(S::Collection),
    kfunc("bpf_rbtree_remove", TAKE, GENERIC).special(S::Collection),
    kfunc("bpf_rbtree_right", PEEK, GENERIC).special(S::Collection),
    kfunc("bpf_rbtree_root", PEEK, GENERIC).special(S::Collection),
    kfunc("bpf_rcu_read_lock", F::NONE, ALL).special(S::ReadLock),
    kfunc("bpf_rcu_read_unlock", F::NONE, ALL).special(S::ReadUnlock),
    kfunc("bpf_rdonly_cast", F::NONE, ALL).special(S::ReadOnlyCast),
    kfunc("bpf_refcount_acquire_impl", GET_RCU.and(F::IN_LOCK), GENERIC).special(S::Share),
    kfunc("bpf_remove_dentry_xattr", SLEEPS, LSM),
    kfunc("bpf_send_signal_task", F::TRUSTED_ARGS, ALL),
    kfunc("bpf_session_cookie", F::RET_MEMORY, KPROBE),
    kfunc("bpf_session_is_return", F::NONE, KPROBE),
    kfunc("bpf_set_dentry_xattr", SLEEPS, LSM),
    kfunc("bpf_sk_assign_tcp_reqsk", F::TRUSTED_ARGS, TC),
    kfunc("bpf_skb_ct_alloc", GET, TC),
    kfunc("bpf_skb_ct_lookup", GET, TC),
    kfunc("bpf_skb_get_fou_encap", F::TRUSTED_ARGS, TC),
    kfunc("bpf_skb_get_xfrm_info", F::NONE, TC),
    kfunc("bpf_skb_set_fou_encap", F::TRUSTED_ARGS, TC),
    kfunc("bpf_skb_set_xfrm_info", F::NONE, TC),
    kfunc("bpf_sock_addr_set_sun_path", F::NONE, CGROUP),
    kfunc("bpf_sock_destroy", F::TRUSTED_ARGS.and(F::FROM_ITERATORS), ITERATOR),
    kfunc("bpf_task_acquire", GET_RCU, GENERIC),
    kfunc("bpf_task_from_pid", GET, GENERIC),
    kfunc("bpf_task_from_vpid", GET, GENERIC),
    kfunc("bpf_task_get_cgroup1", GET_RCU, GENERIC),
    kfunc("bpf_task_release", F::RELEASE, GENERIC),
    kfunc("bpf_task_under_cgroup", F::RCU, GENERIC),
    kfunc("bpf_throw", F::NONE, GENERIC).special(S::Throw),
    kfunc("bpf_verify_pkcs7_signature", F::SLEEPABLE, KEYS),
    kfunc("bpf_wq_init", F::NONE, ALL).special(S::WorkInit),
    kfunc("bpf_wq_set_callback_impl", F::NONE, ALL).special(S::WorkCallback),
    kfunc("bpf_wq_start", F::NONE, ALL).special(S::WorkStart),
    kfunc("bpf_xdp_ct_alloc", GET, XDP),
    kfunc("bpf_xdp_ct_lookup", GET, XDP),
    kfunc("bpf_xdp_flow_lookup", F::TRUSTED_ARGS.and(F::RET_NULL), XDP),
    kfunc("bpf_xdp_get_xfrm_state", GET, XDP),
    kfunc("bpf_xdp_metadata_rx_hash", F::TRUSTED_ARGS, XDP).special(S::DeviceBound),
    kfunc("bpf_xdp_metadata_rx_timestamp", F::TRUSTED_ARGS, XDP).special(S::DeviceBound),
    kfunc("bpf_xdp_metadata_rx_vlan_tag", F::TRUSTED_ARGS, XDP).special(S::DeviceBound),
    kfunc("bpf_xdp_xfrm_state_release", F::RELEASE, XDP),
    kfunc("cgroup_rstat_flush", F::SLEEPABLE, TRACING),
    kfunc("cgroup_rstat_updated", F::NONE, TRACING),
    kfunc("crash_kexec", F::DESTRUCTIVE, TRACING),
    kfunc("css_rstat_flush", F::SLEEPABLE, TRACING),
    kfunc("css_rstat_updated", F::NONE, TRACING),
    kfunc("cubictcp_acked", F::NONE, STRUCT_OPS),
    kfunc("cubictcp_cong_avoid", F::NONE, STRUCT_OPS),
    kfunc("cubictcp_cwnd_event", F::NONE, STRUCT_OPS),
    kfunc("cubictcp_init", F::NONE, STRUCT_OPS),
    kfunc("cubictcp_recalc_ssthresh", F::NONE, STRUCT_OPS),
    kfunc("cubictcp_state", F::NONE, STRUCT_OPS),
    kfunc("tcp_cong_avoid_ai", F::NONE, STRUCT_OPS),
    kfunc("tcp_reno_cong_avoid", F::NONE, STRUCT_OPS),
    kfunc("tcp_reno_ssthresh", F::NONE, STRUCT_OPS),
    kfunc("tcp_reno_undo_cwnd", F::NONE, STRUCT_OPS),
    kfunc("tcp_slow_start", F::NONE, STRUCT_OPS),
];

/// The function of that name, if skep knows it.
pub fn kfunc_named(name: &str) -> Option<&'static Kfunc> {
    KFUNCS.binary_search_by(|kfunc| kfunc.name.cmp(name)).ok().map(|at| &KFUNCS[at])
}

use KfuncFlags as F;
use SpecialKfunc as S;

/// A reference to something that may not exist.
const GET: F = F::ACQUIRE.and(F::RET_NULL);
/// The same, from an argument that a read-side critical section protects.
const GET_RCU: F = GET.and(F::RCU);
/// A node of a list or tree, which stays there.
const PEEK: F = F::RET_NULL.and(F::IN_LOCK);
/// A node that is taken out.
const TAKE: F = GET.and(F::IN_LOCK);
/// A node is put in.
const INSERT: F = F::INSERTS.and(F::IN_LOCK);
const SLEEPS: F = F::SLEEPABLE.and(F::TRUSTED_ARGS);
const NEXT: F = F::ITER_NEXT.and(F::RET_NULL).and(F::RET_MEMORY);
const NEW_TRUSTED: F = F::ITER_NEW.and(F::TRUSTED_ARGS);

// Numbers of Linux's program types.
const ALL: &[u32] = &[];
const GENERIC: &[u32] = &[3, 5, 6, 7, 8, 9, 15, 18, 23, 25, 26, 27, 29, 31];
const CPUMASK: &[u32] = &[5, 7, 26, 27, 29, 31];
const TRACING: &[u32] = &[5, 7, 26, 29];
const KEYS: &[u32] = TRACING;
const ITERATOR: &[u32] = &[26];
const KPROBE: &[u32] = &[2];
const LSM: &[u32] = &[29];
const SYSCALL: &[u32] = &[31];
const XDP: &[u32] = &[6];
const TC: &[u32] = &[3];
const TC_XDP: &[u32] = &[3, 6];
const SKB: &[u32] = &[1, 3, 5, 7, 8, 9, 10, 11, 12, 14, 18, 19, 23, 25, 26, 29, 32];
const CGROUP: &[u32] = &[8, 9, 18, 23, 25];
const STRUCT_OPS: &[u32] = &[27];

const fn kfunc(name: &'static str, flags: KfuncFlags, types: &'static [u32]) -> Kfunc {
    Kfunc { name, flags, types, special: SpecialKfunc::None }
}

impl Kfunc {
    const fn special(self, special: SpecialKfunc) -> Self {
        Self { special, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ascend_so_that_they_are_found() {
        for pair in KFUNCS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} must not precede {}", pair[0].name, pair[1].name);
        }
        assert_eq!(kfunc_named("bpf_task_acquire").map(|kfunc| kfunc.flags), Some(GET_RCU));
        assert_eq!(kfunc_named("bpf_task_acquir"), None);
    }

    #[test]
    fn iterators_come_in_threes() {
        let count = |flag| KFUNCS.iter().filter(|kfunc| kfunc.flags.has(flag)).count();
        assert!(count(F::ITER_NEW) > 0);
        assert_eq!(count(F::ITER_NEW), count(F::ITER_NEXT));
        assert_eq!(count(F::ITER_NEW), count(F::ITER_DESTROY));
    }

    #[test]
    fn types_restrict_who_may_call() {
        let of = |name| kfunc_named(name).expect("known");
        assert!(of("bpf_rcu_read_lock").is_for(None));
        assert!(of("bpf_dynptr_from_xdp").is_for(Some(6)));
        assert!(!of("bpf_dynptr_from_xdp").is_for(Some(3)));
        assert!(!of("bpf_dynptr_from_xdp").is_for(None));
    }
}
