//! Calls of the host's own functions.

use crate::common::host::{accepted, check, check_with, refused};
use skep_abi::{OWN_KFUNC, OWN_KFUNCS, own_kfunc_number};
use skep_verifier::Code;

/// Acquires a task into r6 (not null); then `rest`, and the exit.
fn held(rest: &str) -> String {
    format!("r1 = 1\ncall @bpf_task_from_pid\nif r0 == 0 goto end\nr6 = r0\n{rest}\nend:\nr0 = 0\nexit")
}

#[test]
fn what_is_acquired_is_released_once() {
    let release = "r1 = r6\ncall @bpf_task_release";
    accepted("tc", &held(release));
    accepted("xdp", &held(&format!("r2 = *(u32 *)(r6 + 0)\n{release}")));
    refused("tc", &held(""), Code::Resource, "still held");
    refused("tc", &held(&format!("{release}\n{release}")), Code::Uninitialised, "r1 held an object");
    refused("tc", &held(&format!("{release}\nr2 = *(u32 *)(r6 + 0)")), Code::Uninitialised, "r6");
    refused("tc", "r1 = 1\ncall @bpf_task_from_pid\nr0 = 0\nexit", Code::Resource, "still held");
    let unchecked = "r1 = 1\ncall @bpf_task_from_pid\nr1 = r0\ncall @bpf_task_release\nr0 = 0\nexit";
    refused("tc", unchecked, Code::MaybeNull, "trusted_ptr_or_null_task_struct");
    // The argument of a tracepoint is not a reference.
    let text = "r1 = *(u64 *)(r1 + 8)\ncall @bpf_task_release\nr0 = 0\nexit";
    refused("tp_btf/sched_switch", text, Code::Resource, "holds no reference");
    refused(
        "tc",
        &held(&format!("r1 = r6\nr1 += 96\ncall @bpf_task_release\n{release}")),
        Code::Argument,
        "struct task_struct",
    );
}

#[test]
fn the_program_type_decides_which_kfuncs_it_may_call() {
    accepted("tc", "call @bpf_rcu_read_lock\ncall @bpf_rcu_read_unlock\nr0 = 0\nexit");
    refused("socket", "r1 = 1\ncall @bpf_task_from_pid\nr0 = 0\nexit", Code::Helper, "bpf_task_from_pid");
    refused("tc", "call @bpf_cpumask_create\nr0 = 0\nexit", Code::Helper, "bpf_cpumask_create");
    refused("tc", "r1 = 1\ncall @some_other_function\nr0 = 0\nexit", Code::Helper, "some_other_function");
    refused("tc", "call @bpf_xdp_metadata_rx_hash\nr0 = 0\nexit", Code::Helper, "may not call");
    refused("xdp", "call @bpf_xdp_metadata_rx_hash\nr0 = 0\nexit", Code::Helper, "bound to a device");
    refused("tc", "call kfunc[1]\nr0 = 0\nexit", Code::Types, "no function of number 1");
    let refusal = check_with("tc", "call @bpf_rcu_read_lock\nr0 = 0\nexit", None).expect_err("no types");
    assert_eq!(refusal.code, Code::Types, "{refusal}");
}

#[test]
fn the_runtime_s_own_functions_need_no_types() {
    let call = |name| format!("call kfunc[{}]\n", own_kfunc_number(name).unwrap());
    let (enter, leave) = (call("bpf_rcu_read_lock"), call("bpf_rcu_read_unlock"));
    let check = |text: String| check_with("tc", &text, None);
    assert!(check(format!("{enter}{leave}r0 = 0\nexit")).is_ok());
    for (text, code) in [
        (format!("{enter}r0 = 0\nexit"), Code::Resource),
        (format!("{leave}r0 = 0\nexit"), Code::Resource),
        (format!("{enter}{leave}exit"), Code::Uninitialised),
        (format!("r6 = r1\n{enter}{leave}r0 = *(u32 *)(r1 + 0)\nexit"), Code::Uninitialised),
        (format!("call kfunc[{}]\nr0 = 0\nexit", OWN_KFUNC + OWN_KFUNCS.len() as u32), Code::Types),
    ] {
        assert_eq!(check(text.clone()).expect_err(&text).code, code, "{text}");
    }
}

#[test]
fn sections_are_left_exactly_once() {
    refused("tc", "call @bpf_rcu_read_lock\nr0 = 0\nexit", Code::Resource, "read section");
    refused("tc", "call @bpf_rcu_read_unlock\nr0 = 0\nexit", Code::Resource, "not in one");
    refused("tc", "call @bpf_preempt_disable\nr0 = 0\nexit", Code::Resource, "preemption disabled");
    let twice = "call @bpf_preempt_disable\ncall @bpf_preempt_disable\ncall @bpf_preempt_enable\n";
    accepted("tc", &format!("{twice}call @bpf_preempt_enable\nr0 = 0\nexit"));
    refused("tc", &format!("{twice}r0 = 0\nexit"), Code::Resource, "preemption disabled");
    // Neither has a result.
    refused(
        "tc",
        "r0 = 1\ncall @bpf_rcu_read_lock\ncall @bpf_rcu_read_unlock\nexit",
        Code::Uninitialised,
        "",
    );
}

#[test]
fn nothing_sleeps_where_that_is_not_allowed() {
    let copy = "r1 = r10\nr1 += -8\nr2 = 8\nr3 = 0\nr4 = 0\ncall @bpf_copy_from_user_str\n";
    accepted("fentry.s/__x64_sys_read", &format!("{copy}r0 = 0\nexit"));
    refused("fentry/vfs_read", &format!("{copy}r0 = 0\nexit"), Code::Helper, "may sleep");
    let text = format!("call @bpf_rcu_read_lock\n{copy}call @bpf_rcu_read_unlock\nr0 = 0\nexit");
    refused("fentry.s/__x64_sys_read", &text, Code::Resource, "may sleep");
}

#[test]
fn memory_arguments_have_the_size_that_the_next_one_says() {
    let text = |size: &str| {
        format!("r1 = r10\nr1 += -8\n{size}\nr3 = 0\nr4 = 0\ncall @bpf_copy_from_user_str\nr0 = 0\nexit")
    };
    refused("fentry.s/__x64_sys_read", &text("r2 = 9"), Code::OutOfBounds, "");
    refused("fentry.s/__x64_sys_read", &text("r2 = -1"), Code::Argument, "bounded size");
    let lookup = |sizes: (u32, u32)| {
        format!(
            "*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\n*(u64 *)(r10 - 32) = 0\n*(u64 *)(r10 - 24) = 0\nr2 = r10\n\
             r2 += -16\nr3 = {}\nr4 = r10\nr4 += -32\nr5 = {}\ncall @bpf_xdp_ct_lookup\nif r0 == 0 goto +2\nr1 = r0\n\
             call @bpf_ct_release\nr0 = 0\nexit",
            sizes.0, sizes.1
        )
    };
    accepted("xdp", &lookup((12, 12)));
    refused("xdp", &lookup((12, 40)), Code::OutOfBounds, "");
}

#[test]
fn an_uninitialised_type_is_not_the_initialised_one() {
    let alloc = "*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\nr2 = r10\nr2 += -16\nr3 = 12\nr4 = r2\nr5 = 12\n\
                 call @bpf_xdp_ct_alloc\nif r0 == 0 goto end\nr1 = r0\n";
    accepted(
        "xdp",
        &format!(
            "{alloc}call @bpf_ct_insert_entry\nif r0 == 0 goto end\nr1 = r0\ncall @bpf_ct_release\nend:\nr0 = 0\nexit"
        ),
    );
    refused(
        "xdp",
        &format!("{alloc}call @bpf_ct_release\nend:\nr0 = 0\nexit"),
        Code::Argument,
        "struct nf_conn",
    );
}

#[test]
fn objects_that_begin_with_the_wanted_type_are_accepted() {
    let mask = |rest: &str| {
        format!(
            "call @bpf_cpumask_create\nif r0 == 0 goto end\nr6 = r0\n{rest}\nr1 = r6\ncall @bpf_cpumask_release\nend:\nr0 = 0\nexit"
        )
    };
    accepted("tp_btf/sched_switch", &mask("r1 = 0\nr2 = r6\ncall @bpf_cpumask_test_cpu"));
    accepted("tp_btf/sched_switch", &mask("r1 = 0\nr2 = r6\ncall @bpf_cpumask_set_cpu"));
    let cpus = "r6 = *(u64 *)(r1 + 16)\nr2 = *(u64 *)(r6 + 64)\nr1 = 0\n";
    accepted("tp_btf/sched_switch", &format!("{cpus}call @bpf_cpumask_test_cpu\nr0 = 0\nexit"));
    refused(
        "tp_btf/sched_switch",
        &format!("{cpus}call @bpf_cpumask_set_cpu\nr0 = 0\nexit"),
        Code::Argument,
        "struct bpf_cpumask in r2, found rcu_ptr_cpumask",
    );
}

/// A loop over numbers. `body` runs for each, with the number's address in r0.
fn count(body: &str) -> String {
    format!(
        "r1 = r10\nr1 += -8\nr2 = 0\nr3 = 10\ncall @bpf_iter_num_new\nnext:\nr1 = r10\nr1 += -8\n\
         call @bpf_iter_num_next\nif r0 == 0 goto done\n{body}\ngoto next\ndone:\nr1 = r10\nr1 += -8\n\
         call @bpf_iter_num_destroy\nr0 = 0\nexit"
    )
}

#[test]
fn iterators_are_created_advanced_and_destroyed() {
    accepted("tc", &count("r1 = *(u32 *)(r0 + 0)"));
    refused("tc", &count("r1 = *(u64 *)(r0 + 0)"), Code::OutOfBounds, "4-byte");
    refused("tc", &count("*(u32 *)(r0 + 0) = 1"), Code::ReadOnly, "only be read");
    refused("tc", &count("r0 = 0\nexit"), Code::Resource, "still held");
    let unmade = "r1 = r10\nr1 += -8\ncall @bpf_iter_num_next\nr0 = 0\nexit";
    refused("tc", unmade, Code::Argument, "bpf_iter_num_next expects an iterator");
    let place = "r1 = r10\nr1 += -4\nr2 = 0\nr3 = 10\ncall @bpf_iter_num_new\nr0 = 0\nexit";
    refused("tc", place, Code::Argument, "bpf_iter_num_new");
    let bounds = "r1 = r10\nr1 += -8\nr2 = r10\nr3 = 10\ncall @bpf_iter_num_new\nr0 = 0\nexit";
    refused("tc", bounds, Code::Argument, "a number in r2");
}

#[test]
fn the_runtime_s_iterators_are_verified_like_the_kernel_s() {
    let own = |text: &str| {
        let numbered = ["new", "next", "destroy"].into_iter().fold(text.to_owned(), |text, name| {
            let name = format!("bpf_iter_num_{name}");
            text.replace(&format!("@{name}"), &format!("kfunc[{}]", own_kfunc_number(&name).unwrap()))
        });
        check_with("tc", &numbered, None).map(drop).map_err(|refusal| refusal.code)
    };
    let of_kernel = |text: &str| check("tc", text).map(drop).map_err(|refusal| refusal.code);
    let unmade = "r1 = r10\nr1 += -8\ncall @bpf_iter_num_next\nr0 = 0\nexit";
    let place = count("").replace("-8", "-4");
    let number = count("").replace("r2 = 0", "r2 = r10");
    let result = count("").replace("r2 = 0", "r2 = 0\nr6 = 0").replace("r0 = 0\nexit", "exit");
    let missing = count("").replace("r3 = 10\n", "");
    let read =
        count("").replace("call @bpf_iter_num_destroy", "r2 = *(u32 *)(r1 + 0)\ncall @bpf_iter_num_destroy");
    let written = count("*(u32 *)(r10 - 8) = 0");
    for (text, expected) in [
        (count("r1 = *(u32 *)(r0 + 0)").as_str(), None),
        (&count("r1 = *(u64 *)(r0 + 0)"), Some(Code::OutOfBounds)),
        (&count("*(u32 *)(r0 + 0) = 1"), Some(Code::ReadOnly)),
        (&count("r0 = 0\nexit"), Some(Code::Resource)),
        (unmade, Some(Code::Argument)),
        (&place, Some(Code::Argument)),
        (&number, Some(Code::Argument)),
        (&result, Some(Code::Uninitialised)),
        (&missing, Some(Code::Uninitialised)),
        (&read, of_kernel(&read).err()),
        (&written, Some(Code::Resource)),
    ] {
        assert_eq!(own(text).err(), expected, "{text}");
        assert_eq!(of_kernel(text).err(), expected, "{text}");
    }
    assert!(own(&read).is_err());
}

#[test]
fn destroying_an_iterator_invalidates_its_element() {
    let text = count("r6 = r0").replace("r1 = r10\nr1 += -8\nr2 = 0", "r6 = 0\nr1 = r10\nr1 += -8\nr2 = 0");
    accepted("tc", &text);
    let after = text.replace("r0 = 0\nexit", "if r6 == 0 goto +1\nr1 = *(u32 *)(r6 + 0)\nr0 = 0\nexit");
    refused("tc", &after, Code::Uninitialised, "r6");
}

#[test]
fn task_iterators_need_a_read_section() {
    let tasks = "r1 = r10\nr1 += -24\nr2 = 0\nr3 = 0\ncall @bpf_iter_task_new\nnext:\nr1 = r10\nr1 += -24\n\
                 call @bpf_iter_task_next\nif r0 == 0 goto done\nr1 = *(u32 *)(r0 + 0)\ngoto next\ndone:\nr1 = r10\n\
                 r1 += -24\ncall @bpf_iter_task_destroy\n";
    accepted("fentry/vfs_read", &format!("{tasks}r0 = 0\nexit"));
    refused("fentry.s/__x64_sys_read", &format!("{tasks}r0 = 0\nexit"), Code::Resource, "read section");
    let locked = format!("call @bpf_rcu_read_lock\n{tasks}call @bpf_rcu_read_unlock\nr0 = 0\nexit");
    accepted("fentry.s/__x64_sys_read", &locked);
}

/// A dynptr over the packet at r10 - 16.
fn packet(rest: &str) -> String {
    format!("r6 = r1\nr2 = 0\nr3 = r10\nr3 += -16\ncall @bpf_dynptr_from_xdp\n{rest}\nr0 = 0\nexit")
}

/// A slice of `size` bytes in r0.
fn slice(function: &str, size: &str) -> String {
    format!("r1 = r10\nr1 += -16\nr2 = 0\nr3 = 0\nr4 = {size}\ncall @{function}\n")
}

#[test]
fn dynptrs_show_packets() {
    let read = slice("bpf_dynptr_slice", "8");
    accepted("xdp", &packet(&format!("{read}if r0 == 0 goto +1\nr1 = *(u64 *)(r0 + 0)")));
    refused("xdp", &packet(&format!("{read}r1 = *(u64 *)(r0 + 0)")), Code::MaybeNull, "");
    refused(
        "xdp",
        &packet(&format!("{read}if r0 == 0 goto +1\nr1 = *(u64 *)(r0 + 1)")),
        Code::OutOfBounds,
        "8-byte",
    );
    refused("xdp", &packet(&format!("{read}if r0 == 0 goto +1\n*(u64 *)(r0 + 0) = 1")), Code::ReadOnly, "");
    let write = slice("bpf_dynptr_slice_rdwr", "8");
    accepted("xdp", &packet(&format!("{write}if r0 == 0 goto +1\n*(u64 *)(r0 + 0) = 1")));
    let unknown = format!("call 7\nr0 &= 7\n{}", read.replace("r4 = 8", "r4 = r0"));
    refused("xdp", &packet(&unknown), Code::Argument, "a constant size");
    refused("xdp", &format!("{read}r0 = 0\nexit"), Code::Argument, "initialised dynptr");
    accepted("xdp", &packet("r1 = r10\nr1 += -16\ncall @bpf_dynptr_size"));
}

#[test]
fn a_buffer_for_the_copy_is_filled() {
    let with_buffer = slice("bpf_dynptr_slice", "8").replace("r3 = 0", "r3 = r10\nr3 += -24");
    accepted("xdp", &packet(&format!("{with_buffer}r1 = *(u64 *)(r10 - 24)")));
    let short = with_buffer.replace("+= -24", "+= -4");
    refused("xdp", &packet(&short), Code::OutOfBounds, "");
}

#[test]
fn slices_end_where_the_packet_may_have_moved() {
    let text = packet(&format!(
        "{}r7 = r0\nr1 = r6\nr2 = 0\ncall 44\nif r7 == 0 goto +1\nr1 = *(u64 *)(r7 + 0)",
        slice("bpf_dynptr_slice", "8")
    ));
    refused("xdp", &text, Code::Uninitialised, "r7");
}

#[test]
fn socket_buffers_are_written_only_by_types_that_write_packets() {
    let from = "r2 = 0\nr3 = r10\nr3 += -16\ncall @bpf_dynptr_from_skb\n";
    let write = slice("bpf_dynptr_slice_rdwr", "8");
    accepted("tc", &format!("{from}{write}r0 = 0\nexit"));
    refused("socket", &format!("{from}{write}r0 = 0\nexit"), Code::ReadOnly, "a writable dynptr");
    accepted("socket", &format!("{from}{}r0 = 0\nexit", slice("bpf_dynptr_slice", "8")));
    // Programs that trace the host have its own structure for the context.
    accepted("tp_btf/netif_rx", &format!("r1 = *(u64 *)(r1 + 0)\n{from}r0 = 0\nexit"));
    refused(
        "fentry/net_rx",
        &format!("r1 = *(u64 *)(r1 + 0)\n{from}r0 = 0\nexit"),
        Code::Argument,
        "ptr_sk_buff",
    );
    refused("tc", &format!("r1 += 4\n{from}r0 = 0\nexit"), Code::Argument, "context, unchanged");
}

#[test]
fn casts_give_typed_objects_of_the_host() {
    accepted("xdp", "call @bpf_cast_to_kern_ctx\nr0 = *(u32 *)(r0 + 8)\nr0 = 0\nexit");
    accepted("tc", "call @bpf_cast_to_kern_ctx\nr0 = *(u32 *)(r0 + 0)\nr0 = 0\nexit");
    refused("xdp", "r1 = 1\ncall @bpf_cast_to_kern_ctx\nr0 = 0\nexit", Code::Argument, "the context");
    let cast = "call 7\nr1 = r0\nr2 = @task_struct\ncall @bpf_rdonly_cast\nr6 = r0\nr2 = *(u32 *)(r6 + 0)\n";
    accepted("tc", &format!("{cast}r2 = *(u64 *)(r6 + 32)\nr2 = *(u32 *)(r2 + 0)\nr0 = 0\nexit"));
    refused(
        "tc",
        &format!("{cast}r1 = r6\ncall @bpf_task_acquire\nr0 = 0\nexit"),
        Code::Argument,
        "untrusted_ptr_task_struct",
    );
    refused(
        "tc",
        "r2 = 9999999\ncall @bpf_rdonly_cast\nr0 = 0\nexit",
        Code::Argument,
        "number of a structure",
    );
}

#[test]
fn a_program_that_throws_may_hold_no_references() {
    accepted("tc", "r1 = 0\ncall @bpf_throw\nr1 = *(u64 *)(r9 + 0)\nr0 = 0\nexit");
    refused("tc", &held("r1 = 0\ncall @bpf_throw"), Code::Resource, "bpf_throw");
}

#[test]
fn functions_that_may_throw_are_known_with_their_callers() {
    let verified = accepted(
        "tc",
        "call over
         call quiet
         r0 = 0
         exit
         over:
         call throws
         r0 = 0
         exit
         quiet:
         r0 = 1
         exit
         throws:
         r1 = 7
         call @bpf_throw
         r0 = 0
         exit",
    );
    let may_throw: Vec<bool> = verified.functions().iter().map(|function| function.may_throw).collect();
    let throws: Vec<usize> = (0..verified.facts().len()).filter(|&at| verified.facts()[at].throws).collect();
    assert_eq!((may_throw, throws), (vec![true, true, false, true], vec![10]));
    assert_eq!(verified.exception_callback(), None);
}

#[test]
fn objects_of_unknown_types_are_not_allocated() {
    refused("tc", "r1 = 1\nr2 = 0\ncall @bpf_obj_new_impl\nr0 = 0\nexit", Code::Types, "has no BTF");
}

#[test]
fn security_hooks_access_files() {
    let path = "r6 = *(u64 *)(r1 + 0)\nr1 = r6\nr1 += 16\nr2 = r10\nr2 += -16\nr3 = 16\ncall @bpf_path_d_path\nr0 = 0\nexit";
    accepted("lsm/file_open", path);
    refused("lsm/file_open", &path.replace("+= 16", "+= 8"), Code::Argument, "struct path");
    let exe = "call 158\nr1 = r0\ncall @bpf_get_task_exe_file\nif r0 == 0 goto +2\nr1 = r0\ncall @bpf_put_file\nr0 = 0\nexit";
    accepted("lsm/file_open", exe);
    refused("lsm/file_open", &exe.replace("call @bpf_put_file\n", ""), Code::Resource, "still held");
}

#[test]
fn only_the_arguments_of_a_kfunc_keep_paths_before_its_call_apart() {
    // Two paths meet before a call: `second` is another value of the register than 1 on the first.
    let meet = |reg: &str, second: &str, rest: &str| {
        format!(
            "r6 = r1\nr7 = map_value[1]+0x0 ll\ncall 7\nr1 = 1\nr2 = 1\nr3 = 1\nif r0 == 7 goto meet\n{reg} = {second}\nmeet: call \
             @bpf_task_from_pid\nif r0 == 0 goto end\nr1 = r0\ncall @bpf_task_release\n{rest}end: r0 = 0\nexit"
        )
    };
    let walked = |text: &str| accepted("tc", text).stats().walked;
    let alone = walked(&meet("r3", "1", ""));
    // The call has one parameter: what lies in r2 and r3 is not read, whatever it is.
    for (reg, second) in [("r2", "2"), ("r3", "r10"), ("r3", "r6")] {
        assert_eq!(walked(&meet(reg, second, "")), alone, "{reg} = {second}");
    }
    // What lies in r1 is read, on both paths.
    refused("tc", &meet("r1", "r10", ""), Code::Argument, "bpf_task_from_pid");
    refused("tc", &meet("r1", "r6", ""), Code::Argument, "bpf_task_from_pid");
}
