/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The scheduler's events: time off the processor, chains of parents, tasks that are kept in maps.
 */
#include "kernel.h"

struct event {
	__u64 delta;
	__u32 pid, parent;
	char comm[16];
};

struct keeper {
	struct task_struct __kptr *task;
	__u64 since;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} switched_off SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

MAP(ARRAY, 8, __u32, struct keeper) keepers SEC(".maps");
MAP(HASH, 1024, __u32, __u64) histogram SEC(".maps");
MAP(PERF_EVENT_ARRAY, 0, __u32, __u32) perf SEC(".maps");
MAP(STACK_TRACE, 1024, __u32, __u64[20]) stacks SEC(".maps");

KFUNC struct task_struct *bpf_task_acquire(struct task_struct *p);
KFUNC void bpf_task_release(struct task_struct *p);
KFUNC struct task_struct *bpf_task_from_pid(__s32 pid);
KFUNC void bpf_rcu_read_lock(void);
KFUNC void bpf_rcu_read_unlock(void);

volatile __u64 noted;
const volatile __u64 threshold = 1000000;

static __always_inline __u32 log2_of(__u64 v)
{
	__u32 r = 0;

	for (int shift = 32; shift; shift >>= 1)
		if (v >> shift) {
			v >>= shift;
			r += shift;
		}
	return r;
}

SEC("tp_btf/sched_switch")
int off_cpu(__u64 *ctx)
{
	struct task_struct *previous = ARG(struct task_struct *, 1), *next = ARG(struct task_struct *, 2);
	__u64 now = bpf_ktime_get_ns(), *off;
	struct event *event;

	if (previous->__state && previous->mm) {
		off = bpf_task_storage_get(&switched_off, previous, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (off)
			*off = now;
	}
	off = bpf_task_storage_get(&switched_off, next, 0, 0);
	if (!off || now - *off < threshold)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	event->delta = now - *off;
	event->pid = next->pid;
	event->parent = next->real_parent->tgid;
	__builtin_memcpy(event->comm, next->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("tp_btf/sched_switch")
int latency(__u64 *ctx)
{
	struct task_struct *previous = ARG(struct task_struct *, 1);
	__u32 slot = log2_of(bpf_ktime_get_ns() - BPF_CORE_READ(previous, start_time));
	__u64 one = 1, *count = bpf_map_lookup_elem(&histogram, &slot);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&histogram, &slot, &one, BPF_NOEXIST);
	return 0;
}

SEC("tp_btf/sched_switch")
int with_stacks(__u64 *ctx)
{
	struct task_struct *next = ARG(struct task_struct *, 2);
	struct {
		__u32 pid;
		__s32 kernel;
		char comm[16];
	} sample = {};

	if (next->flags & 0x00200000)
		return 0;
	sample.pid = next->pid;
	sample.kernel = bpf_get_stackid(ctx, &stacks, BPF_F_REUSE_STACKID);
	bpf_probe_read_kernel_str(sample.comm, sizeof(sample.comm), next->comm);
	return bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, &sample, sizeof(sample));
}

SEC("tp_btf/sched_switch")
int ancestors(__u64 *ctx)
{
	struct task_struct *task = ARG(struct task_struct *, 1);
	int depth = 0;

	for (int i = 0; i < 16; i++) {
		if (task->pid <= 1)
			break;
		task = task->real_parent;
		depth++;
	}
	if (depth > 8)
		bpf_printk("%d is deep, by uid %d", depth, task->cred->uid.val);
	return 0;
}

SEC("tp_btf/sched_switch")
int kept(__u64 *ctx)
{
	struct task_struct *task = ARG(struct task_struct *, 1), *taken, *old;
	__u32 key = task->prio & 7;
	struct keeper *keeper = bpf_map_lookup_elem(&keepers, &key);

	if (!keeper)
		return 0;
	taken = bpf_task_acquire(task);
	if (!taken)
		return 0;
	keeper->since = bpf_ktime_get_ns();
	old = bpf_kptr_xchg(&keeper->task, taken);
	if (old)
		bpf_task_release(old);
	return 0;
}

SEC("tp_btf/sched_switch")
int looked_at(__u64 *ctx)
{
	__u32 key = ARG(struct task_struct *, 1)->prio & 7;
	struct keeper *keeper = bpf_map_lookup_elem(&keepers, &key);
	struct task_struct *task;

	if (!keeper)
		return 0;
	bpf_rcu_read_lock();
	task = keeper->task;
	if (task && task->real_parent)
		bpf_printk("%s", task->real_parent->comm);
	bpf_rcu_read_unlock();
	return 0;
}

SEC("tp_btf/sched_switch")
int leader_taken(__u64 *ctx)
{
	struct task_struct *leader = ARG(struct task_struct *, 1)->group_leader, *taken;

	taken = bpf_task_acquire(leader);
	if (taken)
		bpf_task_release(taken);
	return 0;
}

/* A reference that goes nowhere. */
SEC("tp_btf/sched_switch")
int bad_task_kept(__u64 *ctx)
{
	struct task_struct *task = bpf_task_from_pid(ARG(struct task_struct *, 1)->tgid);

	if (task)
		noted = task->pid;
	return 0;
}

/* No task may have that number. */
SEC("tp_btf/sched_switch")
int bad_task_unchecked(__u64 *ctx)
{
	struct task_struct *task = bpf_task_from_pid(ARG(struct task_struct *, 1)->tgid);

	bpf_task_release(task);
	return 0;
}

/* Tasks are there to look at. */
SEC("tp_btf/sched_switch")
int bad_task_written(__u64 *ctx)
{
	ARG(struct task_struct *, 1)->prio = 0;
	return 0;
}

/* What was walked to by way of members that nothing protects may be gone before it is taken. */
SEC("tp_btf/sched_switch")
int bad_space_taken(__u64 *ctx)
{
	struct task_struct *taken = bpf_task_acquire((void *)ARG(struct task_struct *, 1)->nsproxy);

	if (taken)
		bpf_task_release(taken);
	return 0;
}

/* The section is left on one way only. */
SEC("tp_btf/sched_switch")
int bad_section_held(__u64 *ctx)
{
	bpf_rcu_read_lock();
	if (ARG(struct task_struct *, 1)->pid == 0)
		return 0;
	bpf_rcu_read_unlock();
	return 0;
}

/* The event has four arguments. */
SEC("tp_btf/sched_switch")
int bad_argument(__u64 *ctx)
{
	return ctx[7];
}

/* What a map keeps is exchanged by calls. */
SEC("tp_btf/sched_switch")
int bad_kept_without_a_call(__u64 *ctx)
{
	__u32 key = 0;
	struct keeper *keeper = bpf_map_lookup_elem(&keepers, &key);

	if (keeper)
		keeper->task = ARG(struct task_struct *, 1);
	return 0;
}

/* The record is larger than what lies in the stack. */
SEC("tp_btf/sched_switch")
int bad_size_of_a_record(__u64 *ctx)
{
	struct event event = { .pid = ARG(struct task_struct *, 1)->pid };

	bpf_ringbuf_output(&events, &event, sizeof(event) + 8, 0);
	return 0;
}
