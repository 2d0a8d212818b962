/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Programs that go through things: all tasks, a map's elements, numbers; and what they print.
 */
#include "kernel.h"

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

KFUNC int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end);
KFUNC int *bpf_iter_num_next(struct bpf_iter_num *it);
KFUNC void bpf_iter_num_destroy(struct bpf_iter_num *it);
KFUNC int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags);
KFUNC struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it);
KFUNC void bpf_iter_task_destroy(struct bpf_iter_task *it);
KFUNC void bpf_rcu_read_lock(void);
KFUNC void bpf_rcu_read_unlock(void);

/* Linux's own macro prints an array of numbers, and so does this one. */
#define PRINT(seq, format, ...)                                                                \
	({                                                                                     \
		static const char text[] = format;                                             \
		__u64 numbers[] = { __VA_ARGS__ };                                             \
		bpf_seq_printf(seq, text, sizeof(text), numbers, sizeof(numbers));             \
	})

MAP(HASH, 64, __u32, __u64) per_user SEC(".maps");
volatile __u64 noted;
int values[32];

SEC("iter/task")
int all_tasks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;

	if (!task) {
		PRINT(seq, "%llu sessions\n", ctx->meta->session_id);
		return 0;
	}
	if (ctx->meta->seq_num == 0)
		PRINT(seq, "%s", (__u64)(long)"  pid parent\n");
	PRINT(seq, "%5d %5d %s\n", task->pid, task->real_parent->pid, (__u64)(long)task->comm);
	return 0;
}

SEC("iter/task")
int bytes_of_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct {
		__u32 pid, tgid;
		__u64 start;
	} entry;

	if (!task)
		return 0;
	if (task->pid != task->tgid)
		return 0;
	entry.pid = task->pid;
	entry.tgid = task->tgid;
	entry.start = task->start_time;
	return bpf_seq_write(ctx->meta->seq, &entry, sizeof(entry)) ? 1 : 0;
}

SEC("iter/bpf_map_elem")
int all_elements(struct bpf_iter__bpf_map_elem *ctx)
{
	__u32 *key = ctx->key;
	__u64 *value = ctx->value;

	if (!key || !value)
		return 0;
	PRINT(ctx->meta->seq, "%u: %llu\n", *key, *value);
	*value = 0;
	return 0;
}

SEC("tc")
int numbers(struct __sk_buff *skb)
{
	struct bpf_iter_num it;
	__u64 sum = 0;
	int *number;

	bpf_iter_num_new(&it, 0, skb->len);
	while ((number = bpf_iter_num_next(&it))) {
		if (*number >= 0 && *number < 32)
			sum += values[*number];
		if (sum > 1000)
			break;
	}
	bpf_iter_num_destroy(&it);
	return sum & 3;
}

/* Linux gives up what it knew of the upper half of a number that two rounds see differently. */
SEC("tc")
int numbers_of_numbers(struct __sk_buff *skb)
{
	struct bpf_iter_num outer, inner;
	int *i, *j, best = 0;

	bpf_iter_num_new(&outer, 0, 100);
	while ((i = bpf_iter_num_next(&outer))) {
		__u32 at = *i;

		bpf_iter_num_new(&inner, 0, 50);
		while ((j = bpf_iter_num_next(&inner))) {
			if (at < 32 && values[at] > best)
				best = values[at];
		}
		bpf_iter_num_destroy(&inner);
	}
	bpf_iter_num_destroy(&outer);
	return best > (int)skb->len;
}

SEC("tp_btf/sched_switch")
int threads(__u64 *ctx)
{
	struct task_struct *task;
	struct bpf_iter_task it;
	__u64 count = 0;

	(void)ctx;
	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, 0, 0);
	while ((task = bpf_iter_task_next(&it)))
		count += task->pid == task->tgid;
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	noted = count;
	return 0;
}

/* An iterator is to be destroyed, on each way. */
SEC("tc")
int bad_iterator_kept(struct __sk_buff *skb)
{
	struct bpf_iter_num it;
	int *number;

	bpf_iter_num_new(&it, 0, skb->len);
	while ((number = bpf_iter_num_next(&it)))
		if (*number == 7)
			return 1;
	bpf_iter_num_destroy(&it);
	return 0;
}

/* The end of numbers is null. */
SEC("tc")
int bad_number_unchecked(struct __sk_buff *skb)
{
	struct bpf_iter_num it;
	int number;

	bpf_iter_num_new(&it, 0, skb->len);
	number = *bpf_iter_num_next(&it);
	bpf_iter_num_destroy(&it);
	return number & 3;
}

/* What the iterator counts to is not known, so its numbers are not either. */
SEC("tc")
int bad_number_as_index(struct __sk_buff *skb)
{
	struct bpf_iter_num it;
	__u64 sum = 0;
	int *number;

	bpf_iter_num_new(&it, 0, skb->len);
	while ((number = bpf_iter_num_next(&it)))
		sum += values[*number];
	bpf_iter_num_destroy(&it);
	return sum & 3;
}

/* Nobody began. */
SEC("tc")
int bad_iterator_not_begun(struct __sk_buff *skb)
{
	struct bpf_iter_num it = { { skb->len } };

	return bpf_iter_num_next(&it) ? 1 : 0;
}

/* At the end there is no task. */
SEC("iter/task")
int bad_task_at_the_end(struct bpf_iter__task *ctx)
{
	noted = ctx->task->pid;
	return 0;
}

/* 0 goes on, 1 asks again; there is no 2. */
SEC("iter/task")
int bad_answer(struct bpf_iter__task *ctx)
{
	return ctx->task ? 2 : 0;
}

/* Keys are for reading. */
SEC("iter/bpf_map_elem")
int bad_key_written(struct bpf_iter__bpf_map_elem *ctx)
{
	__u32 *key = ctx->key;

	if (key)
		*key = 0;
	return 0;
}
