//! Attachments, and loads through the host's objects.

use crate::common::host::{accepted, check, check_with, refused};
use skep_verifier::Code;

#[test]
fn arguments_have_the_types_of_the_prototype() {
    // struct file *, char __user *, u64, long *, and for fexit the result.
    accepted("fentry/vfs_read", "r2 = *(u64 *)(r1 + 0)\nr3 = *(u32 *)(r2 + 0)\nr0 = 0\nexit");
    accepted("fentry/vfs_read", "r2 = *(u64 *)(r1 + 16)\nr3 = *(u32 *)(r1 + 16)\nr0 = 0\nexit");
    accepted("fexit/vfs_read", "r2 = *(u64 *)(r1 + 32)\nr0 = 0\nexit");
    let none = "has 4 values for a program, numbered from 0, but no value 4";
    refused("fentry/vfs_read", "r2 = *(u64 *)(r1 + 32)\nr0 = 0\nexit", Code::Context, none);
    refused("fexit/vfs_read", "r2 = *(u64 *)(r1 + 40)\nr0 = 0\nexit", Code::Context, "but no value 5");
    refused("fentry/vfs_read", "r2 = *(u64 *)(r1 - 8)\nr0 = 0\nexit", Code::Context, "multiple of 8");
    refused("fentry/vfs_read", "r2 = *(u64 *)(r1 + 4)\nr0 = 0\nexit", Code::Context, "multiple of 8");
    refused("fentry/vfs_read", "r2 = *(u32 *)(r1 + 20)\nr0 = 0\nexit", Code::Context, "multiple of 8");
    refused("fentry/vfs_read", "r2 = *(u32 *)(r1 + 0)\nr0 = 0\nexit", Code::Context, "with 8 bytes, found 4");
    refused("fentry/vfs_read", "r2 = *(s32 *)(r1 + 0)\nr0 = 0\nexit", Code::Context, "with 8 bytes");
    // Pointers to user space and pointers to numbers are numbers.
    for at in [8, 24] {
        let text = format!("r2 = *(u64 *)(r1 + {at})\nr3 = *(u8 *)(r2 + 0)\nr0 = 0\nexit");
        refused("fentry/vfs_read", &text, Code::OutOfBounds, "expected a pointer to memory in r2");
    }
}

#[test]
fn arguments_cannot_be_written_or_computed_with() {
    refused("fentry/vfs_read", "*(u64 *)(r1 + 0) = 0\nr0 = 0\nexit", Code::Context, "r1");
    let text = "r2 = *(u64 *)(r1 + 16)\nr2 &= 8\nr1 += r2\nr0 = *(u64 *)(r1 + 0)\nexit";
    refused("fentry/vfs_read", text, Code::OutOfBounds, "expected a pointer to memory in r1");
    accepted("fentry/vfs_read", "r1 += 16\nr2 = *(u64 *)(r1 + 0)\nr0 = 0\nexit");
}

#[test]
fn structures_passed_by_value_occupy_several_arguments() {
    // struct pair, int, struct cred **
    accepted("fentry/many", "r2 = *(u64 *)(r1 + 8)\nr3 = *(u64 *)(r1 + 16)\nr0 = 0\nexit");
    refused("fentry/many", "r2 = *(u64 *)(r1 + 32)\nr0 = 0\nexit", Code::Context, "has 4 values");
    refused("fentry/many", "r2 = *(u64 *)(r1 + 24)\nr0 = 0\nexit", Code::Context, "a pointer to a structure");
}

#[test]
fn functions_that_return_nothing_have_no_result_to_read() {
    refused("fexit/void_function", "r2 = *(u64 *)(r1 + 24)\nr0 = 0\nexit", Code::Context, "has 3 values");
    // A result that is a pointer can be followed.
    accepted("fexit/open_file", "r2 = *(u64 *)(r1 + 8)\nr2 = *(u32 *)(r2 + 0)\nr0 = 0\nexit");
    refused("fmod_ret/void_function", "r0 = 0\nexit", Code::Context, "its result may not be changed");
    refused("fmod_ret/vfs_read", "r0 = 0\nexit", Code::Context, "its result may not be changed");
    accepted("fmod_ret/security_file_open", "r0 = *(u64 *)(r1 + 8)\nexit");
}

#[test]
fn tracepoints_hooks_and_iterators_are_found_by_their_names() {
    let walk = |at: i32| format!("r2 = *(u64 *)(r1 + {at})\nr3 = *(u32 *)(r2 + 0)\nr0 = 0\nexit");
    accepted("tp_btf/sched_switch", &walk(8));
    accepted("tp_btf/sched_switch", &walk(16));
    refused("tp_btf/sched_switch", &walk(24), Code::Context, "the tracepoint sched_switch has 3 values");
    accepted("lsm/file_open", &walk(0));
    accepted("iter/task", &walk(0).replace("u32 *)(r2", "u64 *)(r2"));
    refused("iter/task", &walk(8), Code::MaybeNull, "trusted_ptr_or_null_task_struct");
    let checked = "r2 = *(u64 *)(r1 + 8)\nr0 = 0\nif r2 == 0 goto +1\nr3 = *(u32 *)(r2 + 0)\nexit";
    accepted("iter/task", checked);
    refused("iter/task", &walk(16), Code::Context, "the iterator over task has 2 values");
    refused("tp_btf/no_such", "r0 = 0\nexit", Code::Types, "btf_trace_no_such");
    refused("fentry/no_such", "r0 = 0\nexit", Code::Types, "the function no_such");
    refused("lsm/no_such", "r0 = 0\nexit", Code::Types, "bpf_lsm_no_such");
    refused("lsm/vm_enough_memory", "r0 = 0\nexit", Code::Context, "may not be attached");
    refused("fentry", "r0 = 0\nexit", Code::Types, "does not name it");
}

#[test]
fn keys_and_values_of_an_iterator_are_memory() {
    let text = |at, rest: &str| format!("r2 = *(u64 *)(r1 + {at})\nr0 = 0\nif r2 == 0 goto +1\n{rest}\nexit");
    accepted("iter/bpf_map_elem", &text(16, "r3 = *(u64 *)(r2 + 8)"));
    accepted("iter/bpf_map_elem", &text(24, "*(u64 *)(r2 + 8) = 1"));
    refused("iter/bpf_map_elem", &text(16, "*(u64 *)(r2 + 8) = 1"), Code::ReadOnly, "only be read");
}

#[test]
fn the_packet_filters_context_is_a_structure_of_the_host() {
    accepted("netfilter", "r2 = *(u64 *)(r1 + 8)\nr2 = *(u32 *)(r2 + 0)\nr0 = 1\nexit");
    accepted("netfilter", "r2 = *(u64 *)(r1 + 0)\nr2 = *(u8 *)(r2 + 0)\nr0 = 1\nexit");
    refused("netfilter", "r2 = *(u64 *)(r1 + 16)\nr0 = 1\nexit", Code::Context, "has 2 values");
    refused("netfilter", "r0 = 2\nexit", Code::Return, "0 to 1");
}

#[test]
fn struct_ops_members_are_named_with_their_structure() {
    accepted(
        "struct_ops/tcp_congestion_ops.cong_avoid",
        "r2 = *(u64 *)(r1 + 0)\nr2 = *(u32 *)(r2 + 8)\nr0 = 0\nexit",
    );
    // The stub function of the member declares that the argument may be null.
    let text = "r2 = *(u64 *)(r1 + 0)\nr0 = *(u32 *)(r2 + 8)\nexit";
    refused("struct_ops/tcp_congestion_ops.ssthresh", text, Code::MaybeNull, "trusted_ptr_or_null_tcp_sock");
    // The sockets of TCP's functions are TCP sockets.
    accepted(
        "struct_ops/tcp_congestion_ops.cong_avoid",
        "r2 = *(u64 *)(r1 + 0)\nr2 = *(u32 *)(r2 + 24)\nr0 = 0\nexit",
    );
    refused(
        "struct_ops/tcp_congestion_ops.flags",
        "r0 = 0\nexit",
        Code::Types,
        "not a pointer to a function",
    );
    refused("struct_ops/tcp_congestion_ops.none", "r0 = 0\nexit", Code::Types, "has no member none");
    refused("struct_ops/none.none", "r0 = 0\nexit", Code::Types, "no struct none");
    refused("struct_ops/file.f_mode", "r0 = 0\nexit", Code::Types, "programs cannot implement");
    refused("struct_ops/none", "r0 = 0\nexit", Code::Types, "a structure and its member");
}

#[test]
fn results_are_in_the_range_of_the_attachment() {
    refused("fentry/vfs_read", "r0 = 1\nexit", Code::Return, "expected 0");
    refused("lsm/file_open", "r0 = 1\nexit", Code::Return, "-4095 to 0");
    refused("lsm/file_open", "r0 = -4096\nexit", Code::Return, "-4095 to 0");
    accepted("lsm/file_open", "r0 = -4095\nexit");
    accepted("lsm/file_open", "r0 = *(u64 *)(r1 + 8)\nexit");
    accepted("lsm/inode_xattr_skipcap", "r0 = 1\nexit");
    refused("lsm/inode_xattr_skipcap", "r0 = -1\nexit", Code::Return, "0 to 1");
    accepted("lsm/task_free", "r0 = 7\nexit");
    accepted("tp_btf/sched_switch", "r0 = 7\nexit");
    accepted("fmod_ret/security_file_open", "r0 = 7\nexit");
    refused("iter/task", "r0 = 2\nexit", Code::Return, "0 to 1");
}

#[test]
fn without_the_hosts_types_the_refusal_says_how_to_give_them() {
    for (section, text) in [
        ("fentry/vfs_read", "r0 = 0\nexit"),
        ("netfilter", "r0 = 0\nexit"),
        ("xdp", "call @bpf_rcu_read_lock\nr0 = 0\nexit"),
        ("xdp", "r1 = var[@jiffies] ll\nr0 = 0\nexit"),
        ("kprobe", "r1 = 0\ncall 158\nr0 = 0\nexit"),
    ] {
        let refusal = check_with(section, text, None).expect_err(text);
        assert_eq!(refusal.code, Code::Types, "{refusal}");
        assert!(refusal.to_string().contains("--btf"), "{refusal}");
    }
}

/// Loads the task that is switched to into r6.
fn task(rest: &str) -> String {
    format!("r6 = *(u64 *)(r1 + 16)\n{rest}\nr0 = 0\nexit")
}

#[track_caller]
fn loads(rest: &str) {
    accepted("tp_btf/sched_switch", &task(rest));
}

#[track_caller]
fn fails(rest: &str, code: Code, phrase: &str) {
    refused("tp_btf/sched_switch", &task(rest), code, phrase);
}

#[test]
fn numbers_are_read_as_a_whole_or_in_part() {
    loads("r2 = *(u32 *)(r6 + 0)");
    loads("r2 = *(u16 *)(r6 + 2)");
    loads("r2 = *(u8 *)(r6 + 3)");
    loads("r2 = *(s32 *)(r6 + 0)");
    fails("r2 = *(u64 *)(r6 + 0)", Code::OutOfBounds, "struct task_struct: pid");
    fails("r2 = *(u32 *)(r6 + 2)", Code::OutOfBounds, "struct task_struct: pid");
    // Text, also several characters at once.
    loads("r2 = *(u8 *)(r6 + 23)\nr2 = *(u64 *)(r6 + 8)\nr2 = *(u32 *)(r6 + 9)");
    fails("r2 = *(u64 *)(r6 + 17)", Code::OutOfBounds, "comm");
    // Bit fields, as part of the integer that holds them.
    loads("r2 = *(u8 *)(r6 + 24)\nr2 = *(u32 *)(r6 + 24)");
    fails("r2 = *(u32 *)(r6 + 28)", Code::OutOfBounds, "has no member there");
    // Unions, through any member that fits.
    loads("r2 = *(u64 *)(r6 + 128)\nr2 = *(u32 *)(r6 + 132)\nr2 = *(u8 *)(r6 + 129)");
}

#[test]
fn nothing_outside_of_the_structure_is_read() {
    fails("r2 = *(u8 *)(r6 + 152)", Code::OutOfBounds, "ends after 152 bytes");
    fails("r2 = *(u8 *)(r6 - 1)", Code::OutOfBounds, "1 bytes before it");
    loads("r6 += 24\nr2 = *(u8 *)(r6 - 16)");
    fails("r6 += -8\nr2 = *(u8 *)(r6 + 0)", Code::OutOfBounds, "8 bytes before it");
    fails(
        "r2 = *(u32 *)(r6 + 0)\nr2 &= 3\nr6 += r2\nr2 = *(u8 *)(r6 + 8)",
        Code::PointerArithmetic,
        "constant",
    );
}

#[test]
fn pointers_are_read_as_a_whole_and_followed() {
    loads("r2 = *(u64 *)(r6 + 32)\nr2 = *(u64 *)(r2 + 32)\nr2 = *(u32 *)(r2 + 0)");
    loads("r2 = *(u64 *)(r6 + 96)\nr2 = *(u64 *)(r2 + 8)");
    loads("r2 = *(u64 *)(r6 + 48)\nr2 = *(u64 *)(r2 + 0)");
    fails("r2 = *(u32 *)(r6 + 32)", Code::OutOfBounds, "is a pointer");
    fails("r2 = *(u8 *)(r6 + 33)", Code::OutOfBounds, "is a pointer");
    // Pointers to user space or to anything but a structure are numbers.
    for at in [80, 88, 136, 144] {
        fails(
            &format!("r2 = *(u64 *)(r6 + {at})\nr2 = *(u8 *)(r2 + 0)"),
            Code::OutOfBounds,
            "expected a pointer to memory in r2",
        );
    }
}

#[test]
fn objects_are_never_written() {
    fails("*(u32 *)(r6 + 0) = 1", Code::ReadOnly, "trusted_ptr_task_struct");
    fails("r2 = 1\nlock *(u64 *)(r6 + 128) += r2", Code::ReadOnly, "only be read");
    fails("r2 = *(u64 *)(r6 + 32)\n*(u32 *)(r2 + 0) = 1", Code::ReadOnly, "ptr_task_struct");
}

#[test]
fn only_listed_members_of_trusted_objects_are_trusted() {
    // task_pt_regs takes pointers read by following pointers, as in Linux; bpf_task_acquire does not.
    let acquire = |from: &str| {
        format!(
            "{from}\nr1 = r2\ncall @bpf_task_acquire\nif r0 == 0 goto +2\nr1 = r0\ncall @bpf_task_release"
        )
    };
    loads(&acquire("r2 = r6"));
    loads(&acquire("r2 = *(u64 *)(r6 + 40)")); // real_parent: protected by RCU
    fails(&acquire("r2 = *(u64 *)(r6 + 32)"), Code::Argument, "known to be alive"); // parent
    fails(&acquire("r2 = *(u64 *)(r6 + 40)\nr2 = *(u64 *)(r2 + 32)"), Code::Argument, "known to be alive");
    // A member tagged __rcu may be null.
    fails("r2 = *(u64 *)(r6 + 56)\nr3 = *(u32 *)(r2 + 0)", Code::MaybeNull, "rcu_ptr_or_null_cred");
    loads("r2 = *(u64 *)(r6 + 56)\nif r2 == 0 goto +1\nr3 = *(u32 *)(r2 + 0)");
}

#[test]
fn sleepable_programs_must_enter_read_sections() {
    let text = |lock: &str, unlock: &str| {
        format!(
            "call 158\nr6 = r0\n{lock}\nr1 = *(u64 *)(r6 + 40)\ncall @bpf_task_acquire\nif r0 == 0 goto +2\nr1 = r0\n\
             call @bpf_task_release\n{unlock}\nr0 = 0\nexit"
        )
    };
    let (lock, unlock) = ("call @bpf_rcu_read_lock", "call @bpf_rcu_read_unlock");
    accepted("fentry/vfs_read", &text("", ""));
    accepted("fentry.s/__x64_sys_read", &text(lock, unlock));
    refused("fentry.s/__x64_sys_read", &text("", ""), Code::Argument, "known to be alive");
    refused("fentry.s/__x64_sys_read", &text(lock, ""), Code::Resource, "read section");
    refused("fentry.s/__x64_sys_read", &text("", unlock), Code::Argument, "known to be alive");
}

#[test]
fn pointers_of_a_read_section_are_untrusted_after_it() {
    let text = "call 158\nr6 = r0\ncall @bpf_rcu_read_lock\nr7 = *(u64 *)(r6 + 40)\ncall @bpf_rcu_read_unlock\n\
                r2 = *(u32 *)(r7 + 0)\nr1 = r7\ncall @bpf_task_acquire\nr0 = 0\nexit";
    refused("fentry.s/__x64_sys_read", text, Code::Argument, "ptr_task_struct");
    let helper = text.replace("call @bpf_task_acquire", "call 175");
    refused("fentry.s/__x64_sys_read", &helper, Code::Argument, "which is untrusted");
}

#[test]
fn loads_through_objects_are_marked_for_the_compilers() {
    let verified = accepted(
        "tp_btf/sched_switch",
        &task("r2 = *(u32 *)(r6 + 0)\n*(u64 *)(r10 - 8) = 1\nr3 = *(u64 *)(r10 - 8)"),
    );
    let probes: Vec<_> = verified.facts().iter().map(|fact| fact.probe).collect();
    assert_eq!(probes, [false, true, false, false, false, false]);
    let text = task(
        "r2 = r10\nr3 = *(u32 *)(r6 + 0)\n*(u64 *)(r10 - 8) = 0\nif r3 == 0 goto +1\nr2 = r6\nr2 = *(u32 *)(r2 - 8)",
    );
    let refusal = check("tp_btf/sched_switch", &text).expect_err("both");
    assert!(matches!(refusal.code, Code::Context | Code::OutOfBounds), "{refusal}");
}

#[test]
fn helpers_take_their_type_or_one_that_begins_with_it() {
    let cookie = |get: &str| format!("{get}\ncall 46\nr0 = 0\nexit");
    accepted("fentry/tcp_sendmsg", &cookie("r1 = *(u64 *)(r1 + 0)"));
    refused("fentry/tcp_sendmsg", &cookie("r1 = *(u64 *)(r1 + 8)"), Code::Argument, "struct sock_common");
    let tcp = "r1 = *(u64 *)(r1 + 0)\ncall 137\nif r0 == 0 goto +3\nr6 = *(u32 *)(r0 + 24)\nr1 = r0\ncall 46\nr0 = 0\nexit";
    accepted("fentry/tcp_sendmsg", tcp);
    let unchecked = "r1 = *(u64 *)(r1 + 0)\ncall 137\nr6 = *(u32 *)(r0 + 24)\nr0 = 0\nexit";
    refused("fentry/tcp_sendmsg", unchecked, Code::MaybeNull, "ptr_or_null_tcp_sock");
    accepted("kprobe", "call 158\nr1 = r0\ncall 175\nr0 = *(u64 *)(r0 + 8)\nexit");
    refused(
        "kprobe",
        "call 158\nr1 = r0\nr1 += 96\ncall 175\nr0 = 0\nexit",
        Code::Argument,
        "struct task_struct",
    );
    refused(
        "kprobe",
        "call 158\nr1 = *(u64 *)(r0 + 48)\ncall 175\nr0 = 0\nexit",
        Code::Argument,
        "ptr_mm_struct",
    );
    refused("kprobe", "call 158\nr1 = 0\ncall 175\nr0 = 0\nexit", Code::Argument, "found 0");
}

#[test]
fn variables_of_the_host_can_be_read() {
    accepted("xdp", "r1 = var[@jiffies] ll\nr0 = *(u64 *)(r1 + 0)\nr0 = 0\nexit");
    refused("xdp", "r1 = var[@jiffies] ll\nr0 = *(u64 *)(r1 + 8)\nr0 = 0\nexit", Code::OutOfBounds, "8-byte");
    refused(
        "xdp",
        "r1 = var[@jiffies] ll\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit",
        Code::ReadOnly,
        "only be read",
    );
    accepted("xdp", "r1 = var[@init_task] ll\nr0 = *(u32 *)(r1 + 0)\nr0 = 0\nexit");
    // The address of a function only serves to check that the function exists.
    accepted("xdp", "r1 = var[@vfs_read] ll\nr0 = 0\nif r1 != 0 goto +1\nr0 = 1\nexit");
    refused("xdp", "r1 = var[1] ll\nr0 = 0\nexit", Code::Types, "no variable or function of number 1");
}

#[test]
fn per_cpu_variables_need_the_address_of_one_copy() {
    let text = |rest: &str| format!("r1 = var[@runqueues] ll\n{rest}\nr0 = 0\nexit");
    refused("tp_btf/sched_switch", &text("r2 = *(u32 *)(r1 + 0)"), Code::Argument, "percpu_ptr_rq");
    accepted("tp_btf/sched_switch", &text("call 154\nr2 = *(u32 *)(r0 + 0)"));
    accepted("tp_btf/sched_switch", &text("r2 = 1\ncall 153\nif r0 == 0 goto +1\nr2 = *(u32 *)(r0 + 0)"));
    refused(
        "tp_btf/sched_switch",
        &text("r2 = 1\ncall 153\nr2 = *(u32 *)(r0 + 0)"),
        Code::MaybeNull,
        "ptr_or_null_rq",
    );
    let counter = "r1 = var[@counter] ll\ncall 154\nr2 = *(u32 *)(r0 + 0)\nr0 = 0\nexit";
    accepted("tp_btf/sched_switch", counter);
    refused("tp_btf/sched_switch", &counter.replace("+ 0", "+ 4"), Code::OutOfBounds, "4-byte");
    refused(
        "tp_btf/sched_switch",
        "r1 = var[@init_task] ll\ncall 154\nr0 = 0\nexit",
        Code::Argument,
        "a per-CPU variable",
    );
}
