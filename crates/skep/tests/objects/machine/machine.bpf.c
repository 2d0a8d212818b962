// SPDX-License-Identifier: MIT OR Apache-2.0
// Tasks and cgroups that programs hold: one use of them in each program.
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

// Newer than some headers.
#define BPF_MAP_TYPE_CGRP_STORAGE 32

#define __here __attribute__((preserve_access_index))

// What a runtime's tasks and cgroups have, at places of this file's own.
struct kernfs_node {
	int unused;
	__u64 id;
} __here;

struct cgroup_subsys_state {
	long unused;
	int id;
} __here;

struct cgroup {
	long unused[3];
	int level;
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} __here;

struct css_set {
	int unused;
	struct cgroup *dfl_cgrp;
} __here;

struct task_struct {
	char unused[100];
	int pid;
	int tgid;
	struct css_set *cgroups;
	char comm[16];
} __here;

extern struct task_struct *bpf_task_acquire(struct task_struct *task) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;
extern struct task_struct *bpf_task_from_pid(int pid) __ksym;
extern struct task_struct *bpf_task_from_vpid(int pid) __ksym;
extern long bpf_task_under_cgroup(struct task_struct *task, struct cgroup *ancestor) __ksym;
extern struct cgroup *bpf_cgroup_acquire(struct cgroup *group) __ksym;
extern void bpf_cgroup_release(struct cgroup *group) __ksym;
extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *group, int level) __ksym;
extern struct cgroup *bpf_cgroup_from_id(__u64 id) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

struct held {
	struct task_struct __kptr *task;
	struct cgroup __kptr *group;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct held);
} held SEC(".maps");

struct count {
	__u64 runs;
	struct cgroup __kptr *group;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct count);
} of_tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} of_groups SEC(".maps");

#define PROGRAM(name) SEC("syscall") long name(void *context __attribute__((unused)))

// What a program is asked about.
__u64 wanted;

static struct held *shelf(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&held, &zero);
}

PROGRAM(current_task)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (long)task->tgid << 32 | (__u32)task->pid;
}

PROGRAM(current_level)
{
	struct task_struct *task = bpf_get_current_task_btf();
	long level;

	bpf_rcu_read_lock();
	level = task->cgroups->dfl_cgrp->level;
	bpf_rcu_read_unlock();
	return level;
}

// By both ways to it.
PROGRAM(current_group)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cgroup *group;
	long number;

	bpf_rcu_read_lock();
	group = task->cgroups->dfl_cgrp;
	number = group->kn->id << 32 | (__u32)group->self.id;
	bpf_rcu_read_unlock();
	return number;
}

PROGRAM(found_tgid)
{
	struct task_struct *task = bpf_task_from_vpid(wanted);
	long tgid;

	if (!task)
		return -1;
	tgid = task->tgid;
	bpf_task_release(task);
	return tgid;
}

PROGRAM(keep_task)
{
	struct task_struct *task = bpf_task_from_pid(wanted), *old;
	struct held *on = shelf();

	if (!task)
		return -1;
	if (!on) {
		bpf_task_release(task);
		return -2;
	}
	old = bpf_kptr_xchg(&on->task, task);
	if (!old)
		return 0;
	bpf_task_release(old);
	return 1;
}

PROGRAM(kept_pid)
{
	struct held *on = shelf();
	struct task_struct *task;
	long pid = -1;

	if (!on)
		return -2;
	bpf_rcu_read_lock();
	task = on->task;
	if (task)
		pid = task->pid;
	bpf_rcu_read_unlock();
	return pid;
}

PROGRAM(kept_level)
{
	struct held *on = shelf();
	struct task_struct *task;
	long level = -1;

	if (!on)
		return -2;
	bpf_rcu_read_lock();
	task = on->task;
	if (task)
		level = task->cgroups->dfl_cgrp->level;
	bpf_rcu_read_unlock();
	return level;
}

// Whether what is kept can be acquired.
PROGRAM(kept_acquired)
{
	struct held *on = shelf();
	struct task_struct *task, *own;
	long acquired = -1;

	if (!on)
		return -2;
	bpf_rcu_read_lock();
	task = on->task;
	if (task) {
		own = bpf_task_acquire(task);
		acquired = own != NULL;
		if (own)
			bpf_task_release(own);
	}
	bpf_rcu_read_unlock();
	return acquired;
}

PROGRAM(drop_task)
{
	struct held *on = shelf();
	struct task_struct *task;

	if (!on)
		return -2;
	task = bpf_kptr_xchg(&on->task, NULL);
	if (!task)
		return 0;
	bpf_task_release(task);
	return 1;
}

static long one_more(struct task_struct *task)
{
	struct count *count = bpf_task_storage_get(&of_tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	return count ? ++count->runs : -1;
}

PROGRAM(count_current)
{
	return one_more(bpf_get_current_task_btf());
}

PROGRAM(count_found)
{
	struct task_struct *task = bpf_task_from_pid(wanted);
	long count;

	if (!task)
		return -2;
	count = one_more(task);
	bpf_task_release(task);
	return count;
}

PROGRAM(count_kept)
{
	struct held *on = shelf();
	struct task_struct *task;
	long count = -2;

	if (!on)
		return -3;
	bpf_rcu_read_lock();
	task = on->task;
	if (task)
		count = one_more(task);
	bpf_rcu_read_unlock();
	return count;
}

PROGRAM(uncount_kept)
{
	struct held *on = shelf();
	struct task_struct *task;
	long error = 1;

	if (!on)
		return -3;
	bpf_rcu_read_lock();
	task = on->task;
	if (task)
		error = bpf_task_storage_delete(&of_tasks, task);
	bpf_rcu_read_unlock();
	return error;
}

PROGRAM(count_group)
{
	struct task_struct *task = bpf_get_current_task_btf();
	long number = -1;
	__u64 *count;

	bpf_rcu_read_lock();
	count = bpf_cgrp_storage_get(&of_groups, task->cgroups->dfl_cgrp, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (count)
		number = ++*count;
	bpf_rcu_read_unlock();
	return number;
}

// An element of a task keeps a cgroup.
PROGRAM(keep_group)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cgroup *group, *old;
	struct count *count;

	count = bpf_task_storage_get(&of_tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	group = bpf_cgroup_from_id(wanted);
	if (!group)
		return -1;
	if (!count) {
		bpf_cgroup_release(group);
		return -2;
	}
	old = bpf_kptr_xchg(&count->group, group);
	if (!old)
		return 0;
	bpf_cgroup_release(old);
	return 1;
}

PROGRAM(is_under)
{
	struct cgroup *group = bpf_cgroup_from_id(wanted);
	long under;

	if (!group)
		return -1;
	under = bpf_task_under_cgroup(bpf_get_current_task_btf(), group);
	bpf_cgroup_release(group);
	return under;
}

// The level of the ancestor of the current task's cgroup at the level that is wanted.
PROGRAM(ancestor)
{
	struct cgroup *group = bpf_cgroup_from_id(bpf_get_current_cgroup_id()), *found;
	long level = -2;

	if (!group)
		return -3;
	found = bpf_cgroup_ancestor(group, wanted);
	if (found) {
		level = found->level;
		bpf_cgroup_release(found);
	} else {
		level = -1;
	}
	bpf_cgroup_release(group);
	return level;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
