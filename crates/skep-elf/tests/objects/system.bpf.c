/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What tracing programs do with a running system's structures: read them through CO-RE, also by flavours that only
 * some systems have, and use what the kernel defines.
 */
#include "bpf.h"

#define __relocatable __attribute__((preserve_access_index))

char LICENSE[] SEC("license") = "GPL";

struct task_struct {
	int tgid;
	int pid;
	char comm[16];
	struct task_struct *real_parent;
	unsigned int in_execve : 1;
} __relocatable;

struct task_struct___ancient {
	int state_of_old;
} __relocatable;

struct rq;

enum bpf_map_type { BPF_MAP_TYPE_ARENA = 99, BPF_MAP_TYPE_OF_NO_KERNEL = 1000 };

extern const struct rq runqueues __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void bpf_of_no_kernel(void) __ksym __weak;

#define FIELD(field, question) __builtin_preserve_field_info(((struct task_struct *)0)->field, question)

SEC("raw")
u64 reads(struct task_struct *task)
{
	return task->pid + task->real_parent->tgid + task->comm[3];
}

SEC("raw")
u64 chooses(struct task_struct *task)
{
	struct task_struct___ancient *old = (void *)task;
	if (__builtin_preserve_field_info(old->state_of_old, 2))
		return old->state_of_old;
	return 3;
}

SEC("raw")
u64 execve(void *bytes)
{
	u64 at = FIELD(in_execve, 0);
	return at << 32 | FIELD(in_execve, 1) << 24 | FIELD(in_execve, 3) << 16 | FIELD(in_execve, 4) << 8 |
	       FIELD(in_execve, 5);
}

SEC("raw")
u64 values(void *bytes)
{
	return __builtin_preserve_enum_value(*(enum bpf_map_type *)BPF_MAP_TYPE_ARENA, 1) << 8 |
	       __builtin_preserve_enum_value(*(enum bpf_map_type *)BPF_MAP_TYPE_OF_NO_KERNEL, 0);
}

SEC("raw")
u64 symbols(void *bytes)
{
	bpf_rcu_read_lock();
	bpf_rcu_read_unlock();
	if (bpf_of_no_kernel)
		bpf_of_no_kernel();
	return (u64)&runqueues;
}
