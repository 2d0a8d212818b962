//! Helpers of tracing programs: the host's memory, tasks, stacks and events, and system calls.

use super::kinds::*;
use crate::helper::{ArgKind, Callback, HelperFlags, HelperProto, RetKind};

const TASK: ArgKind = object(&["task_struct"]);
const SEQ: ArgKind = object(&["seq_file"]);
const FIND: ArgKind = ArgKind::Callback(Callback::FindArea);

/// The helpers.
pub(super) static HELPERS: &[HelperProto] = &[
    // Memory.
    f(4, "probe_read", [WRITE, SIZE0, Anything], Number).gpl(),
    f(36, "probe_write_user", [Anything, READ, SIZE], Number).gpl(),
    f(45, "probe_read_str", [WRITE, SIZE0, Anything], SizeOrError).gpl(),
    f(112, "probe_read_user", [WRITE, SIZE0, Anything], Number).gpl(),
    f(113, "probe_read_kernel", [WRITE, SIZE0, Anything], Number).gpl(),
    f(114, "probe_read_user_str", [WRITE, SIZE0, Anything], SizeOrError).gpl(),
    f(115, "probe_read_kernel_str", [WRITE, SIZE0, Anything], SizeOrError).gpl(),
    f(148, "copy_from_user", [WRITE, SIZE0, Anything], Number).sleeping(),
    f(191, "copy_from_user_task", [WRITE, SIZE0, Anything, TASK, Anything], Number).gpl().sleeping(),
    // The current task.
    f(14, "get_current_pid_tgid", [], Number),
    f(15, "get_current_uid_gid", [], Number),
    f(16, "get_current_comm", [WRITE, SIZE], Number),
    f(35, "get_current_task", [], Number).gpl(),
    f(37, "current_task_under_cgroup", [Map, Anything], Number),
    f(80, "get_current_cgroup_id", [], Number),
    f(109, "send_signal", [Anything], Number),
    f(117, "send_signal_thread", [Anything], Number),
    f(120, "get_ns_current_pid_tgid", [Anything, Anything, WRITE, SIZE], Number),
    f(123, "get_current_ancestor_cgroup_id", [Anything], Number),
    f(158, "get_current_task_btf", [], CURRENT).gpl().with(MACHINE.and(HelperFlags::TRUSTED_RESULT)),
    f(175, "task_pt_regs", [TASK], REGISTERS).gpl(),
    f(180, "find_vma", [TASK, Anything, FIND, CallbackContext, Anything], Number),
    // Stacks, events, branches.
    f(22, "perf_event_read", [Map, Anything], Number).gpl(),
    f(25, "perf_event_output", [Context, Map, Anything, READ, SIZE0], Number).gpl(),
    f(27, "get_stackid", [Context, Map, Anything], Number).gpl(),
    f(55, "perf_event_read_value", [Map, Anything, WRITE, SIZE], Number).gpl(),
    f(56, "perf_prog_read_value", [Context, WRITE, SIZE], Number).gpl(),
    f(67, "get_stack", [Context, WRITE, SIZE0, Anything], SizeOrError).gpl(),
    f(111, "skb_output", [object(&["sk_buff"]), Map, Anything, READ, SIZE0], Number).gpl(),
    f(119, "read_branch_records", [Context, WRITE_OR_NULL, SIZE0, Anything], Number).gpl(),
    f(121, "xdp_output", [object(&["xdp_buff"]), Map, Anything, READ, SIZE0], Number).gpl(),
    f(141, "get_task_stack", [TASK, WRITE, SIZE0, Anything], SizeOrError),
    f(176, "get_branch_snapshot", [WRITE, SIZE0], Number).gpl(),
    // The traced function.
    f(58, "override_return", [Context, Anything], Number).gpl(),
    f(173, "get_func_ip", [Context], Number).gpl(),
    f(174, "get_attach_cookie", [Context], Number),
    f(183, "get_func_arg", [Context, Anything, U64_OUT], Number),
    f(184, "get_func_ret", [Context, U64_OUT], Number),
    f(185, "get_func_arg_cnt", [Context], Number),
    // Text.
    f(126, "seq_printf", [SEQ, READ, SIZE, Values, SIZE0], Number).gpl(),
    f(127, "seq_write", [SEQ, READ, SIZE0], Number).gpl(),
    f(147, "d_path", [object(&["path"]), WRITE, SIZE0], Number),
    f(149, "snprintf_btf", [WRITE, SIZE, READ, SIZE, Anything], Number),
    f(150, "seq_printf_btf", [SEQ, READ, SIZE0, Anything], Number).gpl(),
    // Security.
    f(159, "bprm_opts_set", [object(&["linux_binprm"]), Anything], Number),
    f(161, "ima_inode_hash", [object(&["inode"]), WRITE, SIZE], Number).sleeping(),
    f(193, "ima_file_hash", [object(&["file"]), WRITE, SIZE], Number).sleeping(),
    // System calls.
    f(166, "sys_bpf", [Anything, READ, SIZE], Number),
    f(167, "btf_find_by_name_kind", [READ, SIZE, Anything, Anything], Number),
    f(168, "sys_close", [Anything], Number),
    f(179, "kallsyms_lookup_name", [READ, SIZE0, Anything, U64_OUT], Number),
];

const MACHINE: HelperFlags = HelperFlags::MACHINE;
const CURRENT: RetKind = RetKind::Object { of: "task_struct", maybe_null: false };
const REGISTERS: RetKind = RetKind::Object { of: "pt_regs", maybe_null: false };
