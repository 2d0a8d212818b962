//! Implementations of the helpers whose prototypes are in `skep-abi`.
//!
//! Each file has one subject. An implementation takes as many arguments as its helper has, and the environment of the
//! run; `helper!` makes the [`HelperFn`] that programs call. Every dereference here relies on what the verifier proved
//! of the call's arguments: a memory argument is readable or writable for its whole size, a map argument is a map's
//! handle, a context argument is the run's own context.
//!
//! Helpers report failure like Linux, by a negated error number in `r0`.

/// The [`skep_abi::HelperFn`] of an implementation with that many arguments: it drops the other registers.
macro_rules! helper {
    ($implementation:path, 0) => { helper!($implementation, [] [_a _b _c _d _e]) };
    ($implementation:path, 1) => { helper!($implementation, [a] [_b _c _d _e]) };
    ($implementation:path, 2) => { helper!($implementation, [a b] [_c _d _e]) };
    ($implementation:path, 3) => { helper!($implementation, [a b c] [_d _e]) };
    ($implementation:path, 4) => { helper!($implementation, [a b c d] [_e]) };
    ($implementation:path, 5) => { helper!($implementation, [a b c d e] []) };
    ($implementation:path, [$($used:ident)*] [$($unused:ident)*]) => {{
        unsafe extern "C" fn call($($used: u64,)* $($unused: u64,)* env: *mut ::skep_abi::RunEnv) -> u64 {
            // SAFETY: the arguments and the environment are those of the call.
            unsafe { $implementation($($used,)* env) }
        }
        call as ::skep_abi::HelperFn
    }};
}

mod arena;
mod bits;
#[cfg(test)]
mod book_tests;
mod buffer;
pub(crate) mod callback;
mod checksum;
pub(crate) mod client;
pub(crate) mod conformance;
mod cpumask;
mod dynptr;
mod encap;
mod format;
mod header;
mod hooks;
mod iterators;
pub(crate) mod lock;
mod machine;
mod map;
pub(crate) mod objects;
pub(crate) mod over_contexts;
pub(crate) mod own;
mod packet;
mod perf;
mod print;
mod probe;
pub(crate) mod recorded;
mod redirect;
mod resize;
mod ring;
mod route;
mod sections;
mod seq;
mod skb;
mod socket;
mod sockopt;
mod stack;
mod storage;
mod stream;
mod syncookie;
mod system;
mod task;
mod text;
mod timer;
mod tunnel;
mod user_ring;
mod vlan;
mod xdp;

use skep_abi::HelperFn;

/// All helpers of Linux that this runtime provides, ascending by number.
pub(crate) static PROVIDED: &[(u32, HelperFn)] = &[
    (1, helper!(map::lookup_elem, 2)),
    (2, helper!(map::update_elem, 4)),
    (3, helper!(map::delete_elem, 2)),
    (4, helper!(probe::read, 3)),
    (5, helper!(system::ktime_get_ns, 0)),
    (6, helper!(print::trace_printk, 5)),
    (7, helper!(system::get_prandom_u32, 0)),
    (8, helper!(system::get_smp_processor_id, 0)),
    (9, helper!(packet::skb_store_bytes, 5)),
    (10, helper!(checksum::l3_csum_replace, 5)),
    (11, helper!(checksum::l4_csum_replace, 5)),
    (12, helper!(callback::tail_call, 0)),
    (13, helper!(redirect::clone_redirect, 3)),
    (14, helper!(task::pid_tgid, 0)),
    (15, helper!(task::uid_gid, 0)),
    (16, helper!(task::comm, 2)),
    (17, helper!(skb::cgroup_classid, 1)),
    (18, helper!(vlan::push, 3)),
    (19, helper!(vlan::pop, 1)),
    (20, helper!(tunnel::get_key, 4)),
    (21, helper!(tunnel::set_key, 4)),
    (23, helper!(redirect::redirect, 2)),
    (24, helper!(skb::route_realm, 1)),
    (25, helper!(perf::output, 5)),
    (26, helper!(packet::load_bytes, 4)),
    (27, helper!(stack::id, 3)),
    (28, helper!(checksum::csum_diff, 5)),
    (29, helper!(tunnel::get_opt, 3)),
    (30, helper!(tunnel::set_opt, 3)),
    (31, helper!(resize::change_proto, 3)),
    (32, helper!(resize::change_type, 2)),
    (33, helper!(task::skb_under_cgroup, 3)),
    (34, helper!(skb::get_hash_recalc, 1)),
    (35, helper!(task::address, 0)),
    (37, helper!(task::under_cgroup, 2)),
    (38, helper!(resize::change_tail, 3)),
    (39, helper!(resize::pull_data, 2)),
    (40, helper!(checksum::csum_update, 2)),
    (41, helper!(skb::set_hash_invalid, 1)),
    (42, helper!(system::get_numa_node_id, 0)),
    (43, helper!(resize::change_head, 3)),
    (44, helper!(xdp::adjust_head, 2)),
    (45, helper!(probe::read_str, 3)),
    (46, helper!(socket::get_cookie, 1)),
    (47, helper!(socket::get_uid, 1)),
    (48, helper!(skb::set_hash, 2)),
    (49, helper!(sockopt::setsockopt, 5)),
    (50, helper!(resize::adjust_room, 4)),
    (51, helper!(redirect::redirect_map, 3)),
    (52, helper!(stream::redirect_map, 4)),
    (53, helper!(sockopt::store_own, 4)),
    (54, helper!(xdp::adjust_meta, 2)),
    (57, helper!(sockopt::getsockopt, 5)),
    (59, helper!(sockopt::cb_flags_set, 2)),
    (60, helper!(stream::redirect_map, 4)),
    (61, helper!(stream::apply_bytes, 2)),
    (62, helper!(stream::cork_bytes, 2)),
    (63, helper!(stream::pull_data, 4)),
    (64, helper!(sockopt::bind, 3)),
    (65, helper!(xdp::adjust_tail, 2)),
    (67, helper!(stack::get, 4)),
    (68, helper!(packet::load_bytes_relative, 5)),
    (69, helper!(route::fib_lookup, 4)),
    (70, helper!(sockopt::store_own, 4)),
    (71, helper!(stream::redirect_hash, 4)),
    (72, helper!(stream::redirect_hash, 4)),
    (73, helper!(encap::push, 4)),
    (79, helper!(task::skb_cgroup_id, 1)),
    (80, helper!(task::cgroup_id, 0)),
    (81, helper!(storage::of_cgroup, 2)),
    (82, helper!(stream::select_reuseport, 4)),
    (83, helper!(task::skb_ancestor_cgroup_id, 2)),
    (84, helper!(socket::lookup_tcp, 5)),
    (85, helper!(socket::lookup_udp, 5)),
    (86, helper!(socket::release, 1)),
    (87, helper!(map::push_elem, 3)),
    (88, helper!(map::pop_elem, 2)),
    (89, helper!(map::peek_elem, 2)),
    (90, helper!(stream::push_data, 4)),
    (91, helper!(stream::pop_data, 4)),
    (93, helper!(lock::spin_lock, 1)),
    (94, helper!(lock::spin_unlock, 1)),
    (95, helper!(socket::fullsock, 1)),
    (96, helper!(socket::tcp_sock, 1)),
    (97, helper!(resize::ecn_set_ce, 1)),
    (98, helper!(socket::get_listener_sock, 1)),
    (99, helper!(socket::skc_lookup_tcp, 5)),
    (100, helper!(syncookie::check, 5)),
    (101, helper!(hooks::sysctl_get_name, 4)),
    (102, helper!(hooks::sysctl_get_current_value, 3)),
    (103, helper!(hooks::sysctl_get_new_value, 3)),
    (104, helper!(hooks::sysctl_set_new_value, 3)),
    (105, helper!(text::strtol, 4)),
    (106, helper!(text::strtoul, 4)),
    (107, helper!(storage::sk_get, 4)),
    (108, helper!(storage::sk_delete, 2)),
    (110, helper!(syncookie::make, 5)),
    (112, helper!(probe::read_user, 3)),
    (113, helper!(probe::read_kernel, 3)),
    (114, helper!(probe::read_user_str, 3)),
    (115, helper!(probe::read_kernel_str, 3)),
    (118, helper!(system::jiffies64, 0)),
    (120, helper!(task::namespace_pid_tgid, 4)),
    (122, helper!(socket::get_netns_cookie, 1)),
    (123, helper!(task::ancestor_cgroup_id, 1)),
    (124, helper!(socket::assign, 3)),
    (125, helper!(system::ktime_get_boot_ns, 0)),
    (126, helper!(seq::printf, 5)),
    (127, helper!(seq::write, 3)),
    (128, helper!(task::sk_cgroup_id, 1)),
    (129, helper!(task::sk_ancestor_cgroup_id, 2)),
    (130, helper!(ring::output, 4)),
    (131, helper!(ring::reserve, 3)),
    (132, helper!(ring::submit, 2)),
    (133, helper!(ring::discard, 2)),
    (134, helper!(ring::query, 2)),
    (135, helper!(checksum::csum_level, 2)),
    (142, helper!(header::load, 4)),
    (143, helper!(header::store, 4)),
    (144, helper!(header::reserve, 3)),
    (148, helper!(client::copy_from_user, 3)),
    (151, helper!(skb::cgroup_classid, 1)),
    (152, helper!(redirect::redirect_neigh, 4)),
    (153, helper!(objects::per_cpu_ptr, 2)),
    (154, helper!(objects::this_cpu_ptr, 1)),
    (155, helper!(redirect::redirect_peer, 2)),
    (156, helper!(storage::machine_get, 4)),
    (157, helper!(storage::machine_delete, 2)),
    (158, helper!(machine::current_task, 0)),
    (160, helper!(system::ktime_get_coarse_ns, 0)),
    (163, helper!(route::check_mtu, 5)),
    (164, helper!(callback::for_each_map_elem, 4)),
    (165, helper!(text::snprintf, 5)),
    (166, helper!(client::sys_bpf, 3)),
    (167, helper!(client::btf_find_by_name_kind, 4)),
    (168, helper!(client::sys_close, 1)),
    (169, helper!(timer::init, 3)),
    (170, helper!(timer::set_callback, 2)),
    (171, helper!(timer::start, 3)),
    (172, helper!(timer::cancel, 1)),
    (173, helper!(hooks::get_func_ip, 1)),
    (174, helper!(hooks::get_attach_cookie, 1)),
    (177, helper!(print::trace_vprintk, 4)),
    (179, helper!(client::kallsyms_lookup_name, 4)),
    (181, helper!(callback::bpf_loop, 4)),
    (182, helper!(text::strncmp, 3)),
    (186, helper!(hooks::get_retval, 0)),
    (187, helper!(hooks::set_retval, 1)),
    (188, helper!(xdp::get_buff_len, 1)),
    (189, helper!(xdp::load_bytes, 4)),
    (190, helper!(xdp::store_bytes, 4)),
    (192, helper!(skb::set_tstamp, 3)),
    (194, helper!(objects::kptr_xchg, 2)),
    (195, helper!(map::lookup_percpu_elem, 3)),
    (197, helper!(dynptr::from_mem, 4)),
    (198, helper!(dynptr::ringbuf_reserve, 4)),
    (199, helper!(dynptr::ringbuf_submit, 2)),
    (200, helper!(dynptr::ringbuf_discard, 2)),
    (201, helper!(dynptr::read, 5)),
    (202, helper!(dynptr::write, 5)),
    (203, helper!(dynptr::data, 3)),
    (204, helper!(syncookie::gen_ipv4, 3)),
    (205, helper!(syncookie::gen_ipv6, 3)),
    (206, helper!(syncookie::check_ipv4, 2)),
    (207, helper!(syncookie::check_ipv6, 2)),
    (208, helper!(system::ktime_get_tai_ns, 0)),
    (209, helper!(user_ring::drain, 4)),
    (210, helper!(storage::machine_get, 4)),
    (211, helper!(storage::machine_delete, 2)),
];

/// Linux's error numbers, negated as helpers return them.
pub(crate) mod errno {
    pub(crate) const EPERM: u64 = -1i64 as u64;
    pub(crate) const ENOENT: u64 = -2i64 as u64;
    pub(crate) const E2BIG: u64 = -7i64 as u64;
    pub(crate) const ENOMEM: u64 = -12i64 as u64;
    pub(crate) const EAGAIN: u64 = -11i64 as u64;
    pub(crate) const EACCES: u64 = -13i64 as u64;
    pub(crate) const EFAULT: u64 = -14i64 as u64;
    pub(crate) const EINVAL: u64 = -22i64 as u64;
    pub(crate) const ERANGE: u64 = -34i64 as u64;
    pub(crate) const ENODATA: u64 = -61i64 as u64;
    pub(crate) const EOVERFLOW: u64 = -75i64 as u64;
    pub(crate) const EPROTO: u64 = -71i64 as u64;
    pub(crate) const EOPNOTSUPP: u64 = -95i64 as u64;
    pub(crate) const EALREADY: u64 = -114i64 as u64;
    pub(crate) const ENOTSUPP: u64 = -524i64 as u64;
}

#[cfg(test)]
mod tests {
    use super::PROVIDED;
    use skep_abi::{Access, ArgKind, RunEnv, SkbContext, XdpContext};

    #[test]
    fn provided_helpers_ascend_and_have_prototypes() {
        assert!(PROVIDED.is_sorted_by_key(|(id, _)| *id));
        for (id, _) in PROVIDED {
            assert!(skep_abi::linux_helper(*id).is_some(), "helper {id} has no prototype");
        }
    }

    /// Calls that fail: helper, arguments. `OUT` is replaced by memory of `BYTES` bytes, `CONTEXT` by a context
    /// without a packet, `TEXT` by a string that is not a number, `QUEUE` by an empty queue, `NOTHING` by a null
    /// dynptr.
    const FAILING: [(u32, [u64; 5]); 23] = [
        (4, [OUT, BYTES, 9, 0, 0]),
        (16, [OUT, BYTES, 0, 0, 0]),
        (20, [CONTEXT, OUT, BYTES, 0, 0]),
        (29, [CONTEXT, OUT, BYTES, 0, 0]),
        (45, [OUT, BYTES, 9, 0, 0]),
        (67, [CONTEXT, OUT, BYTES, 1 << 12, 0]),
        (88, [QUEUE, OUT, 0, 0, 0]),
        (89, [QUEUE, OUT, 0, 0, 0]),
        (102, [CONTEXT, OUT, BYTES, 0, 0]),
        (103, [CONTEXT, OUT, BYTES, 0, 0]),
        (105, [TEXT, 2, 0, OUT, 0]),
        (106, [TEXT, 2, 0, OUT, 0]),
        (112, [OUT, BYTES, 9, 0, 0]),
        (113, [OUT, BYTES, 9, 0, 0]),
        (114, [OUT, BYTES, 9, 0, 0]),
        (115, [OUT, BYTES, 9, 0, 0]),
        (120, [1, 1, OUT, BYTES, 0]),
        (148, [OUT, BYTES, 9, 0, 0]),
        (165, [OUT, BYTES, TEXT, 0, 0]), // shorter than the memory
        (165, [OUT, BYTES, TEXT, 0, 4]),
        (179, [TEXT, 2, 0, OUT, 0]),
        (189, [CONTEXT, 0, OUT, BYTES, 0]),
        (201, [OUT, BYTES, NOTHING, 0, 0]),
    ];
    /// They ask for the run's program: `options_that_fail_zero_the_programs_memory_and_lengths_are_checked`,
    /// `bytes_of_a_context_are_copied_and_zeroes_where_there_are_not_enough`.
    const NEEDS_PROGRAM: [u32; 3] = [26, 57, 68];
    const OUT: u64 = 1 << 40;
    const CONTEXT: u64 = 2 << 40;
    const TEXT: u64 = 3 << 40;
    const QUEUE: u64 = 4 << 40;
    const NOTHING: u64 = 5 << 40;
    const BYTES: u64 = 8;

    #[test]
    fn memory_that_a_helper_only_writes_is_written_also_where_it_fails() {
        let writes = |id: u32| {
            let only = |kind: &ArgKind| {
                matches!(
                    kind,
                    ArgKind::MapValue(Access::Write)
                        | ArgKind::Memory { access: Access::Write, .. }
                        | ArgKind::FixedMemory { access: Access::Write, .. }
                )
            };
            skep_abi::linux_helper(id).is_some_and(|proto| proto.args.iter().any(only))
        };
        let nothing = [0u64; 2];
        let runtime = crate::Runtime::new().unwrap();
        let def = skep_abi::MapDef::new("queue", skep_abi::MapKind::Queue, 0, BYTES as u32, 1);
        let queue = skep_maps::Map::create(&def, &skep_maps::Options { cpus: 1, limit: 1 << 20 }).unwrap();
        for (id, function) in PROVIDED.iter().filter(|(id, _)| writes(*id) && !NEEDS_PROGRAM.contains(id)) {
            let calls = FAILING.iter().filter(|(of, _)| of == id);
            assert!(calls.clone().count() > 0, "no call that fails is known of helper {id}");
            for (_, args) in calls {
                let mut out = [0xa5u8; 2 * BYTES as usize];
                let (mut xdp, mut skb) = (XdpContext::default(), SkbContext::default());
                let context = if *id == 189 { &raw mut xdp as u64 } else { &raw mut skb as u64 };
                let text = c"no".as_ptr() as u64;
                let [a, b, c, d, e] = args.map(|arg| match arg {
                    OUT => out.as_mut_ptr() as u64,
                    CONTEXT => context,
                    TEXT => text,
                    QUEUE => queue.link().handle,
                    NOTHING => nothing.as_ptr() as u64,
                    number => number,
                });
                let host = &raw const **runtime.shared() as u64;
                let mut env = RunEnv { host, ..RunEnv::default() };
                // SAFETY: the arguments satisfy the prototype.
                unsafe { function(a, b, c, d, e, &raw mut env) };
                let (within, behind) = out.split_at(BYTES as usize);
                assert!(!within.contains(&0xa5), "helper {id} left {within:x?} with {args:x?}");
                assert!(behind.iter().all(|byte| *byte == 0xa5), "helper {id} wrote {behind:x?} behind it");
            }
        }
    }
}
