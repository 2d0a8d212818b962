//! Helpers that most program types may call: maps, time, numbers, strings, ring buffers, dynptrs, timers.

use super::kinds::*;
use crate::helper::{ArgKind, Callback, DynptrArg, DynptrKind, HelperFlags as H, HelperProto, RetKind};

const RELEASED_OR_NULL: ArgKind = ArgKind::Released { nullable: true };
const ANY_DYNPTR: ArgKind = ArgKind::Dynptr(DynptrArg::Any);
const BACK: ArgKind = ArgKind::Dynptr(DynptrArg::Release);

const fn make(kind: DynptrKind) -> ArgKind {
    ArgKind::Dynptr(DynptrArg::Make(kind))
}

const fn callback(kind: Callback) -> ArgKind {
    ArgKind::Callback(kind)
}

const fn per_cpu(maybe_null: bool) -> RetKind {
    RetKind::PerCpuVariable { maybe_null }
}

/// The helpers.
pub(super) static HELPERS: &[HelperProto] = &[
    // Maps.
    f(1, "map_lookup_elem", [Map, MapKey], RetKind::MapValueOrNull),
    f(2, "map_update_elem", [Map, MapKey, VALUE, Scalar], STATUS)
        .with(H::WRITES_ELEMENTS.and(H::STORES_SOCKETS)),
    f(3, "map_delete_elem", [Map, MapKey], STATUS).with(H::WRITES_ELEMENTS.and(H::DELETES_SOCKETS)),
    f(12, "tail_call", [Context, Map, Scalar], RetKind::TailCall).moves(),
    f(87, "map_push_elem", [Map, VALUE, Anything], Number).with(H::WRITES_ELEMENTS),
    f(88, "map_pop_elem", [Map, VALUE_OUT], Number).with(H::WRITES_ELEMENTS.and(H::READS_ELEMENTS)),
    f(89, "map_peek_elem", [Map, VALUE_OUT], Number).with(H::READS_ELEMENTS),
    f(164, "for_each_map_elem", [Map, callback(Callback::ForEach), CallbackContext, Anything], Number),
    f(195, "map_lookup_percpu_elem", [Map, MapKey, Anything], RetKind::MapValueOrNull),
    f(93, "spin_lock", [ArgKind::SpinLock { takes: true }], Void),
    f(94, "spin_unlock", [ArgKind::SpinLock { takes: false }], Void),
    f(194, "kptr_xchg", [KptrField, RELEASED_OR_NULL], RetKind::KptrOrNull).acquiring(),
    // Time, processors, numbers.
    f(5, "ktime_get_ns", [], Number),
    f(7, "get_prandom_u32", [], U32),
    f(8, "get_smp_processor_id", [], U32),
    f(42, "get_numa_node_id", [], Number),
    f(118, "jiffies64", [], Number),
    f(125, "ktime_get_boot_ns", [], Number),
    f(160, "ktime_get_coarse_ns", [], Number),
    f(208, "ktime_get_tai_ns", [], Number),
    f(153, "per_cpu_ptr", [PerCpuVariable, Anything], per_cpu(true)),
    f(154, "this_cpu_ptr", [PerCpuVariable], per_cpu(false)),
    f(181, "loop", [Anything, callback(Callback::Loop), CallbackContext, Anything], Number),
    // Text.
    f(6, "trace_printk", [READ, SIZE, Printed, Printed, Printed], Number).gpl(),
    f(177, "trace_vprintk", [READ, SIZE, Values, SIZE0], Number).gpl(),
    f(165, "snprintf", [WRITE_OR_NULL, SIZE0, Format, Values, SIZE0], Number).gpl(),
    f(105, "strtol", [READ, SIZE, Anything, U64_OUT], Number),
    f(106, "strtoul", [READ, SIZE, Anything, U64_OUT], Number),
    f(182, "strncmp", [READ, SIZE, ConstString], Number),
    // Ring buffers.
    f(130, "ringbuf_output", [Map, READ, SIZE0, Anything], Number),
    f(131, "ringbuf_reserve", [Map, AllocationSize, Anything], RetKind::MemoryOrNull).acquiring(),
    f(132, "ringbuf_submit", [Record, Anything], Void),
    f(133, "ringbuf_discard", [Record, Anything], Void),
    f(134, "ringbuf_query", [Map, Anything], Number),
    f(198, "ringbuf_reserve_dynptr", [Map, Anything, Anything, make(DynptrKind::Ringbuf)], Number),
    f(199, "ringbuf_submit_dynptr", [BACK, Anything], Void),
    f(200, "ringbuf_discard_dynptr", [BACK, Anything], Void),
    f(209, "user_ringbuf_drain", [Map, callback(Callback::Drain), CallbackContext, Anything], Number),
    // Dynptrs.
    f(197, "dynptr_from_mem", [UPDATE, SIZE0, Anything, make(DynptrKind::Local)], Number),
    f(201, "dynptr_read", [WRITE, SIZE0, ANY_DYNPTR, Anything, Anything], Number),
    f(202, "dynptr_write", [ANY_DYNPTR, Anything, READ, SIZE0, Anything], Number).with(H::WRITES_DYNPTR),
    f(203, "dynptr_data", [ANY_DYNPTR, Anything, AllocationSize], RetKind::DynptrDataOrNull),
    // Timers.
    f(169, "timer_init", [Timer, Map, Anything], Number).gpl(),
    f(170, "timer_set_callback", [Timer, callback(Callback::Timer)], Number).gpl(),
    f(171, "timer_start", [Timer, Anything, Anything], Number).gpl(),
    f(172, "timer_cancel", [Timer], Number).gpl(),
];
