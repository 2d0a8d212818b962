//! The tables of the lifetime grammar: program types, objects, fields that point to other objects, calls that take
//! objects.

use std::collections::BTreeSet;

use crate::section::Section;

/// An object that a register may point to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Thing {
    Task,
    Css,
    Cgroup,
    Mm,
    File,
    Inode,
    Dentry,
    Cpumask,
    Vma,
    Skb,
    Sock,
    /// A socket in the stable layout `struct bpf_sock`.
    BpfSock,
    /// A value of a map, 64 bytes.
    Value,
    /// A dynptr slice of 8 bytes.
    Slice,
    /// Eight bytes of a packet.
    Packet,
}

/// A kind of program: the source of its objects, and its calls.
pub(super) struct Stage {
    pub(super) section: &'static str,
    /// An object among its arguments: the argument's index, and whether it may be null.
    pub(super) argument: Option<(u32, Thing, bool)>,
    pub(super) family: Family,
}

/// The calls that programs of a type may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    Packet,
    Trace,
    Hook,
    Syscall,
    Plain,
}

const fn stage(section: &'static str, argument: Option<(u32, Thing, bool)>, family: Family) -> Stage {
    Stage { section, argument, family }
}

pub(super) const STAGES: &[Stage] = &[
    stage("tc", None, Family::Packet),
    stage("xdp", None, Family::Packet),
    stage("fentry/wake_up_new_task", Some((0, Thing::Task, false)), Family::Trace),
    stage("fexit/vfs_read", Some((0, Thing::File, false)), Family::Trace),
    stage("tp_btf/task_newtask", Some((0, Thing::Task, false)), Family::Trace),
    stage("tp_btf/kfree_skb", Some((0, Thing::Skb, false)), Family::Trace),
    stage("fentry.s/bpf_fentry_test1", None, Family::Trace),
    stage("fentry.s/bpf_fentry_test1", None, Family::Trace),
    stage("lsm/task_alloc", Some((0, Thing::Task, false)), Family::Hook),
    stage("lsm.s/file_open", Some((0, Thing::File, false)), Family::Hook),
    stage("lsm.s/file_open", Some((0, Thing::File, false)), Family::Hook),
    stage("lsm.s/bprm_committed_creds", None, Family::Hook),
    stage("iter/task", Some((1, Thing::Task, true)), Family::Trace),
    stage("iter.s/task", Some((1, Thing::Task, true)), Family::Trace),
    stage("iter/task_file", Some((1, Thing::Task, true)), Family::Trace),
    stage("iter.s/task_vma", Some((2, Thing::Vma, true)), Family::Trace),
    stage("iter.s/cgroup", Some((1, Thing::Cgroup, true)), Family::Trace),
    stage("syscall", None, Family::Syscall),
    stage("syscall", None, Family::Syscall),
    stage("raw_tp", None, Family::Plain),
    stage("uprobe.s", None, Family::Plain),
];

/// A member that points to another object: the source's kind, the structure, the member, the target's kind.
pub(super) const FIELDS: &[(Thing, &str, &str, Thing)] = &[
    (Thing::Task, "task_struct", "real_parent", Thing::Task),
    (Thing::Task, "task_struct", "parent", Thing::Task),
    (Thing::Task, "task_struct", "group_leader", Thing::Task),
    (Thing::Task, "task_struct", "cgroups", Thing::Css),
    (Thing::Task, "task_struct", "mm", Thing::Mm),
    (Thing::Task, "task_struct", "cpus_ptr", Thing::Cpumask),
    (Thing::Css, "css_set", "dfl_cgrp", Thing::Cgroup),
    (Thing::Mm, "mm_struct", "exe_file", Thing::File),
    (Thing::Mm, "mm_struct", "owner", Thing::Task),
    (Thing::File, "file", "f_inode", Thing::Inode),
    (Thing::File, "file", "f_path.dentry", Thing::Dentry),
    (Thing::Dentry, "dentry", "d_inode", Thing::Inode),
    (Thing::Dentry, "dentry", "d_parent", Thing::Dentry),
    (Thing::Vma, "vm_area_struct", "vm_file", Thing::File),
    (Thing::Vma, "vm_area_struct", "vm_mm", Thing::Mm),
    (Thing::Skb, "sk_buff", "sk", Thing::Sock),
];

/// A call that takes an object in `r1` or at `{}` in the text: the object's kind, its name, the families that have
/// it, whether it is for sleepable programs only, the text. The text itself releases the result.
pub(super) struct Use {
    pub(super) of: Thing,
    pub(super) name: &'static str,
    pub(super) families: &'static [Family],
    pub(super) sleeps: bool,
    pub(super) text: &'static str,
}

const fn used(
    of: Thing,
    name: &'static str,
    families: &'static [Family],
    sleeps: bool,
    text: &'static str,
) -> Use {
    Use { of, name, families, sleeps, text }
}

const TRACING: &[Family] = &[Family::Trace, Family::Hook];
const KERNEL: &[Family] = &[Family::Trace, Family::Hook, Family::Syscall];
const HOOK: &[Family] = &[Family::Hook];
const ANY: &[Family] = &[Family::Trace, Family::Hook, Family::Syscall, Family::Packet, Family::Plain];

pub(super) const USES: &[Use] = &[
    used(
        Thing::Task,
        "acquire",
        KERNEL,
        false,
        "r1 = {}; call kfunc[bpf_task_acquire]; if r0 == 0 goto L; r1 = r0; call kfunc[bpf_task_release]; L:",
    ),
    used(
        Thing::Task,
        "storage",
        TRACING,
        false,
        "r1 = map[tasks] ll; r2 = {}; r3 = 0; r4 = 0; call bpf_task_storage_get",
    ),
    used(Thing::Task, "regs", &[Family::Trace], false, "r1 = {}; call bpf_task_pt_regs"),
    used(Thing::Task, "load", ANY, false, "r0 = *(u32 *)({} + 0)"),
    used(
        Thing::Cgroup,
        "acquire",
        KERNEL,
        false,
        "r1 = {}; call kfunc[bpf_cgroup_acquire]; if r0 == 0 goto L; r1 = r0; call kfunc[bpf_cgroup_release]; L:",
    ),
    used(
        Thing::Cgroup,
        "storage",
        TRACING,
        false,
        "r1 = map[cgroups] ll; r2 = {}; r3 = 0; r4 = 0; call bpf_cgrp_storage_get",
    ),
    used(Thing::Css, "load", ANY, false, "r0 = *(u64 *)({} + 0)"),
    used(Thing::Mm, "load", ANY, false, "r0 = *(u64 *)({} + 64)"),
    used(Thing::File, "load", ANY, false, "r0 = *(u64 *)({} + 0)"),
    used(Thing::File, "socket", &[Family::Trace], false, "r1 = {}; call bpf_sock_from_file"),
    used(Thing::File, "hash", HOOK, true, "r1 = {}; r2 = r10; r2 += -80; r3 = 16; call bpf_ima_file_hash"),
    used(
        Thing::Inode,
        "storage",
        HOOK,
        false,
        "r1 = map[inodes] ll; r2 = {}; r3 = 0; r4 = 0; call bpf_inode_storage_get",
    ),
    used(Thing::Inode, "hash", HOOK, true, "r1 = {}; r2 = r10; r2 += -80; r3 = 16; call bpf_ima_inode_hash"),
    used(Thing::Dentry, "load", ANY, false, "r0 = *(u32 *)({} + 0)"),
    used(Thing::Cpumask, "first", KERNEL, false, "r1 = {}; call kfunc[bpf_cpumask_first]"),
    used(Thing::Vma, "load", ANY, false, "r0 = *(u64 *)({} + 0)"),
    used(Thing::Skb, "load", ANY, false, "r0 = *(u64 *)({} + 0)"),
    used(Thing::Sock, "cast", TRACING, false, "r1 = {}; call bpf_skc_to_tcp_sock"),
    used(
        Thing::Sock,
        "storage",
        TRACING,
        false,
        "r1 = map[sockets] ll; r2 = {}; r3 = 0; r4 = 0; call bpf_sk_storage_get",
    ),
    used(Thing::Sock, "load", ANY, false, "r0 = *(u16 *)({} + 16)"),
    used(Thing::BpfSock, "load", ANY, false, "r0 = *(u32 *)({} + 4)"),
    used(Thing::BpfSock, "cast", &[Family::Packet], false, "r1 = {}; call bpf_tcp_sock"),
    used(Thing::Value, "store", ANY, false, "*(u64 *)({} + 16) = 1"),
    used(Thing::Slice, "load", ANY, false, "r0 = *(u64 *)({} + 0)"),
    used(
        Thing::Slice,
        "output",
        ANY,
        false,
        "r1 = map[ring] ll; r2 = {}; r3 = 8; r4 = 0; call bpf_ringbuf_output",
    ),
    used(Thing::Packet, "load", ANY, false, "r0 = *(u64 *)({} + 0)"),
];

/// A call that returns a reference: the object's kind, its name, the families that have it, its text, the call that
/// releases it.
pub(super) const ACQUIRES: &[(Thing, &str, &[Family], &str, &str)] = &[
    (Thing::Task, "from-pid", KERNEL, "r1 = 1; call kfunc[bpf_task_from_pid]", "kfunc[bpf_task_release]"),
    (Thing::Cgroup, "from-id", KERNEL, "r1 = 1; call kfunc[bpf_cgroup_from_id]", "kfunc[bpf_cgroup_release]"),
    (Thing::Cpumask, "create", KERNEL, "call kfunc[bpf_cpumask_create]", "kfunc[bpf_cpumask_release]"),
    (
        Thing::BpfSock,
        "look-up",
        &[Family::Packet],
        "r1 = r6; r2 = r10; r2 += -80; r3 = 12; r4 = 0; r5 = 0; call bpf_sk_lookup_tcp",
        "bpf_sk_release",
    ),
    (
        Thing::File,
        "exe",
        HOOK,
        "call bpf_get_current_task_btf; r1 = r0; call kfunc[bpf_get_task_exe_file]",
        "kfunc[bpf_put_file]",
    ),
];

/// An iterator: its name, its size, the kind of its elements, and the code for the other arguments of its creation
/// (`r1` is the iterator).
pub(super) const ITERATORS: &[(&str, Option<Thing>, &str, Option<Thing>)] = &[
    ("task", Some(Thing::Task), "r2 = 0; r3 = 0", None),
    ("css", None, "r2 = {}; r3 = 0", Some(Thing::Cgroup)),
    ("task_vma", Some(Thing::Vma), "r2 = {}; r3 = 0", Some(Thing::Task)),
    ("num", None, "r2 = 0; r3 = 3", None),
];

/// The maps that programs name, as a verdict file writes them.
pub(super) const MAPS: &[(&str, &str)] = &[
    ("array", "array 4 64 4"),
    ("hash", "hash 4 64 4"),
    ("trie", "lpm_trie 8 64 4 no_prealloc"),
    ("percpu", "percpu_array 4 64 4"),
    ("lru", "lru_hash 4 64 4"),
    ("stacks", "stack_trace 4 64 4"),
    ("bloom", "bloom_filter 0 64 4"),
    ("events", "perf_event_array 4 4 4"),
    ("groups", "cgroup_array 4 4 4"),
    ("progs", "prog_array 4 4 4"),
    ("queue", "queue 0 64 4"),
    ("ring", "ringbuf 0 0 4096"),
    ("user", "user_ringbuf 0 0 4096"),
    ("inner", "array 4 64 4"),
    ("outer", "array_of_maps 4 4 4 inner=inner"),
    ("tasks", "task_storage 4 8 0 no_prealloc"),
    ("cgroups", "cgrp_storage 4 8 0 no_prealloc"),
    ("inodes", "inode_storage 4 8 0 no_prealloc"),
    ("sockets", "sk_storage 4 8 0 no_prealloc"),
    ("locks", "array 4 64 4 lock@0"),
    ("timers", "array 4 64 4 timer@0"),
    ("kept", "array 4 64 4 kptr@8=task_struct"),
];

/// Kfuncs that the events themselves call.
const CALLED: &[&str] = &[
    "bpf_rcu_read_lock",
    "bpf_rcu_read_unlock",
    "bpf_preempt_disable",
    "bpf_preempt_enable",
    "bpf_dynptr_from_skb",
    "bpf_dynptr_from_xdp",
    "bpf_dynptr_slice",
];

/// Structures that helpers name, in addition to those of the fields.
const NAMED: &[&str] =
    &["cpumask", "inode", "sock", "sock_common", "tcp_sock", "pt_regs", "xdp_buff", "bpf_iter_meta"];

/// All kernel symbols that any program of the grammar may name.
pub(super) fn kernel_names() -> Vec<String> {
    let mut names: BTreeSet<String> = CALLED.iter().chain(NAMED).map(|name| (*name).to_owned()).collect();
    names.extend(FIELDS.iter().map(|field| field.1.to_owned()));
    for (name, ..) in ITERATORS {
        names.extend(["new", "next", "destroy"].map(|call| format!("bpf_iter_{name}_{call}")));
    }
    let targets = STAGES.iter().filter_map(|stage| Section::of(stage.section)?.target);
    for target in targets {
        if let Some(object) = target.name.strip_prefix("bpf_iter_") {
            names.insert(format!("bpf_iter__{object}"));
        }
        names.insert(target.name);
    }
    let texts = USES.iter().map(|row| row.text).chain(ACQUIRES.iter().flat_map(|row| [row.3, row.4]));
    for part in texts.flat_map(|text| text.split("kfunc[").skip(1)) {
        names.extend(part.split(']').next().map(str::to_owned));
    }
    names.into_iter().collect()
}
