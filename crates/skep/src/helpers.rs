//! Implementations of the helpers whose prototypes are in `skep-abi`.
//!
//! Each has the signature of [`HelperFn`]; each file has one subject. Every dereference here relies on what the
//! verifier proved of the call's arguments: a memory argument is readable or writable for its whole size, a map
//! argument is a map's handle, a context argument is the run's own context.
//!
//! Helpers report failure like Linux, by a negated error number in `r0`.

#[cfg(test)]
mod book_tests;
mod callback;
mod checksum;
pub(crate) mod conformance;
mod dynptr;
mod format;
mod iterators;
pub(crate) mod lock;
mod map;
pub(crate) mod own;
mod packet;
mod print;
mod ring;
mod sections;
mod skb;
mod system;
mod text;
mod xdp;

use skep_abi::HelperFn;

/// All helpers of Linux that this runtime provides, ascending by number.
pub(crate) static PROVIDED: &[(u32, HelperFn)] = &[
    (1, map::lookup_elem),
    (2, map::update_elem),
    (3, map::delete_elem),
    (5, system::ktime_get_ns),
    (6, print::trace_printk),
    (7, system::get_prandom_u32),
    (8, system::get_smp_processor_id),
    (9, packet::skb_store_bytes),
    (10, checksum::l3_csum_replace),
    (11, checksum::l4_csum_replace),
    (12, callback::tail_call),
    (26, packet::skb_load_bytes),
    (28, checksum::csum_diff),
    (34, skb::get_hash_recalc),
    (38, skb::change_tail),
    (39, skb::pull_data),
    (40, skb::csum_update),
    (41, skb::set_hash_invalid),
    (42, system::get_numa_node_id),
    (43, skb::change_head),
    (44, xdp::adjust_head),
    (48, skb::set_hash),
    (54, xdp::adjust_meta),
    (65, xdp::adjust_tail),
    (68, skb::load_bytes_relative),
    (87, map::push_elem),
    (88, map::pop_elem),
    (89, map::peek_elem),
    (93, lock::spin_lock),
    (94, lock::spin_unlock),
    (105, text::strtol),
    (106, text::strtoul),
    (118, system::jiffies64),
    (125, system::ktime_get_boot_ns),
    (130, ring::output),
    (131, ring::reserve),
    (132, ring::submit),
    (133, ring::discard),
    (134, ring::query),
    (160, system::ktime_get_coarse_ns),
    (164, callback::for_each_map_elem),
    (165, text::snprintf),
    (177, print::trace_vprintk),
    (181, callback::bpf_loop),
    (182, text::strncmp),
    (188, xdp::get_buff_len),
    (189, xdp::load_bytes),
    (190, xdp::store_bytes),
    (195, map::lookup_percpu_elem),
    (197, dynptr::from_mem),
    (198, dynptr::ringbuf_reserve),
    (199, dynptr::ringbuf_submit),
    (200, dynptr::ringbuf_discard),
    (201, dynptr::read),
    (202, dynptr::write),
    (203, dynptr::data),
];

/// The number of `bpf_tail_call`.
pub(crate) const TAIL_CALL: u32 = 12;

/// Linux's error numbers, negated as helpers return them.
pub(crate) mod errno {
    pub(crate) const E2BIG: u64 = -7i64 as u64;
    pub(crate) const EFAULT: u64 = -14i64 as u64;
    pub(crate) const EINVAL: u64 = -22i64 as u64;
    pub(crate) const ERANGE: u64 = -34i64 as u64;
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
    const FAILING: [(u32, [u64; 5]); 10] = [
        (26, [CONTEXT, 0, OUT, BYTES, 0]),
        (68, [CONTEXT, 0, OUT, BYTES, 0]),
        (88, [QUEUE, OUT, 0, 0, 0]),
        (89, [QUEUE, OUT, 0, 0, 0]),
        (105, [TEXT, 2, 0, OUT, 0]),
        (106, [TEXT, 2, 0, OUT, 0]),
        (165, [OUT, BYTES, TEXT, 0, 0]), // shorter than the memory
        (165, [OUT, BYTES, TEXT, 0, 4]),
        (189, [CONTEXT, 0, OUT, BYTES, 0]),
        (201, [OUT, BYTES, NOTHING, 0, 0]),
    ];
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
        let def = skep_abi::MapDef::new("queue", skep_abi::MapKind::Queue, 0, BYTES as u32, 1);
        let queue = skep_maps::Map::create(&def, &skep_maps::Options { cpus: 1, limit: 1 << 20 }).unwrap();
        for (id, function) in PROVIDED.iter().filter(|(id, _)| writes(*id)) {
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
                let mut env = RunEnv::default();
                // SAFETY: the arguments satisfy the prototype.
                unsafe { function(a, b, c, d, e, &raw mut env) };
                let (within, behind) = out.split_at(BYTES as usize);
                assert!(!within.contains(&0xa5), "helper {id} left {within:x?} with {args:x?}");
                assert!(behind.iter().all(|byte| *byte == 0xa5), "helper {id} wrote {behind:x?} behind it");
            }
        }
    }
}
