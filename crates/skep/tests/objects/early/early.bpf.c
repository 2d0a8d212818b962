// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that hold something while they loop and call the host: wherever they end, nothing may stay held.
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));

struct bpf_rb_root {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_node {
	__u64 opaque[4];
} __attribute__((aligned(8)));

struct bpf_refcount {
	__u32 opaque[1];
} __attribute__((aligned(4)));

struct bpf_iter_bits {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

struct task_struct {
	int unused;
} __attribute__((preserve_access_index));

struct cgroup {
	int unused;
} __attribute__((preserve_access_index));

struct cpumask {
	unsigned long bits[128];
};

struct bpf_cpumask {
	struct cpumask cpumask;
	int usage;
};

#define __contains(type, node) __attribute__((btf_decl_tag("contains:" #type ":" #node)))
#define __exception_cb(name) __attribute__((btf_decl_tag("exception_callback:" #name)))
#define holder_of(at, type, member) ((type *)((void *)(at) - __builtin_offsetof(type, member)))

extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern void *bpf_refcount_acquire_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta,
				    __u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       bool(less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta,
			       __u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void bpf_preempt_disable(void) __ksym;
extern void bpf_preempt_enable(void) __ksym;
extern int bpf_iter_bits_new(struct bpf_iter_bits *it, const __u64 *words, __u32 count) __ksym;
extern int *bpf_iter_bits_next(struct bpf_iter_bits *it) __ksym;
extern void bpf_iter_bits_destroy(struct bpf_iter_bits *it) __ksym;
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
extern void bpf_throw(__u64 cookie) __ksym;
extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
extern struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *cpumask) __ksym;
extern void bpf_cpumask_release(struct bpf_cpumask *cpumask) __ksym;
extern struct task_struct *bpf_task_from_pid(int pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;
extern struct cgroup *bpf_cgroup_from_id(__u64 id) __ksym;
extern void bpf_cgroup_release(struct cgroup *group) __ksym;

#define __unused __attribute__((unused))

#define new(type) ((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))
#define drop(object) bpf_obj_drop_impl(object, NULL)

// The host: it may panic, run another program, or do nothing.
static long (*host)(__u32 place) = (void *)1000;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

__u64 steps;

// A few rounds that the compiler keeps.
#define ROUNDS(count)                                                                              \
	do {                                                                                       \
		_Pragma("clang loop unroll(disable)") for (int at = 0; at < (count); at++)         \
		{                                                                                  \
			*(volatile __u64 *)&steps += 1;                                            \
		}                                                                                  \
	} while (0)

struct item {
	__u64 key;
	struct bpf_list_node listed;
	struct bpf_rb_node sorted;
	struct bpf_refcount owners;
};

struct plain {
	__u64 key;
};

struct shelf {
	struct bpf_spin_lock lock;
	struct bpf_list_head list __contains(item, listed);
	struct bpf_rb_root tree __contains(item, sorted);
};

struct kept {
	struct plain __kptr *plain;
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shelf);
} shelves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kept);
} keeps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} programs SEC(".maps");

static __always_inline struct shelf *shelf_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&shelves, &zero);
}

static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	struct item *first = holder_of(a, struct item, sorted);
	struct item *second = holder_of(b, struct item, sorted);

	ROUNDS(3);
	return first->key < second->key;
}

SEC("tc")
int lock(__unused struct __sk_buff *skb)
{
	struct shelf *shelf = shelf_of();

	if (!shelf)
		return -1;
	bpf_spin_lock(&shelf->lock);
	ROUNDS(30);
	bpf_spin_unlock(&shelf->lock);
	host(1);
	return 0;
}

SEC("tc")
int owners(__unused struct __sk_buff *skb)
{
	struct shelf *shelf = shelf_of();
	struct item *item, *second;
	struct bpf_list_node *listed;
	struct bpf_rb_node *sorted;

	if (!shelf)
		return -1;
	item = new (struct item);
	if (!item)
		return -1;
	item->key = steps;
	host(1);
	ROUNDS(3);
	second = bpf_refcount_acquire_impl(item, NULL);
	if (!second) {
		drop(item);
		return -1;
	}
	host(2);
	bpf_spin_lock(&shelf->lock);
	bpf_list_push_front_impl(&shelf->list, &item->listed, NULL, 0);
	ROUNDS(3);
	bpf_rbtree_add_impl(&shelf->tree, &second->sorted, less, NULL, 0);
	ROUNDS(3);
	bpf_spin_unlock(&shelf->lock);
	host(3);
	bpf_spin_lock(&shelf->lock);
	listed = bpf_list_pop_front(&shelf->list);
	ROUNDS(3);
	bpf_spin_unlock(&shelf->lock);
	if (listed) {
		host(4);
		ROUNDS(3);
		item = holder_of(listed, struct item, listed);
		drop(item);
	}
	// Twice: a run that ended left one behind.
	for (int turn = 0; turn < 2; turn++) {
		bpf_spin_lock(&shelf->lock);
		sorted = bpf_rbtree_first(&shelf->tree);
		sorted = sorted ? bpf_rbtree_remove(&shelf->tree, sorted) : NULL;
		ROUNDS(3);
		bpf_spin_unlock(&shelf->lock);
		if (sorted) {
			host(5);
			item = holder_of(sorted, struct item, sorted);
			drop(item);
		}
		bpf_spin_lock(&shelf->lock);
		listed = bpf_list_pop_front(&shelf->list);
		bpf_spin_unlock(&shelf->lock);
		if (listed) {
			item = holder_of(listed, struct item, listed);
			drop(item);
		}
	}
	return 0;
}

SEC("tc")
int kept(__unused struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct kept *kept = bpf_map_lookup_elem(&keeps, &zero);
	struct plain *plain, *other;

	if (!kept)
		return -1;
	plain = new (struct plain);
	if (!plain)
		return -1;
	host(1);
	other = bpf_kptr_xchg(&kept->plain, plain);
	ROUNDS(3);
	host(2);
	if (other)
		drop(other);
	return 0;
}

SEC("tc")
int records(__unused struct __sk_buff *skb)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 16, 0);
	struct bpf_dynptr dynptr;

	if (record) {
		host(1);
		ROUNDS(5);
		*record = steps;
		if (steps & 1)
			bpf_ringbuf_submit(record, 0);
		else
			bpf_ringbuf_discard(record, 0);
	}
	bpf_ringbuf_reserve_dynptr(&ring, 24, 0, &dynptr);
	host(2);
	ROUNDS(5);
	if (steps & 2)
		bpf_ringbuf_submit_dynptr(&dynptr, 0);
	else
		bpf_ringbuf_discard_dynptr(&dynptr, 0);
	host(3);
	return 0;
}

static int step(__u64 round, __unused void *context)
{
	struct shelf *shelf = shelf_of();
	__u64 *record = bpf_ringbuf_reserve(&ring, 16, 0);

	if (!shelf || !record) {
		if (record)
			bpf_ringbuf_discard(record, 0);
		return 1;
	}
	host(round);
	bpf_spin_lock(&shelf->lock);
	ROUNDS(3);
	bpf_spin_unlock(&shelf->lock);
	*record = round;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

// Holds at both sides of a helper's frame.
SEC("tc")
int callbacks(__unused struct __sk_buff *skb)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 16, 0);

	if (!record)
		return -1;
	bpf_loop(5, step, NULL, 0);
	*record = 1;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

SEC("tc")
int iterators(__unused struct __sk_buff *skb)
{
	__u64 words[3] = { 5, 1, 1 };
	struct bpf_iter_bits bits;
	struct bpf_iter_num numbers;
	int *at;

	bpf_iter_bits_new(&bits, words, 3);
	while ((at = bpf_iter_bits_next(&bits))) {
		host(*at);
		bpf_iter_num_new(&numbers, 0, 4);
		while (bpf_iter_num_next(&numbers)) {
			*(volatile __u64 *)&steps += 1;
		}
		bpf_iter_num_destroy(&numbers);
	}
	bpf_iter_bits_destroy(&bits);
	return 0;
}

static __noinline int inner(__u32 depth)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 16, 0);

	if (!record)
		return -1;
	host(depth);
	ROUNDS(3);
	*record = depth;
	bpf_ringbuf_submit(record, 0);
	return host(depth + 10);
}

static __noinline int middle(__u32 depth)
{
	struct plain *plain = new (struct plain);
	int result;

	if (!plain)
		return -1;
	bpf_preempt_disable();
	result = inner(depth + 1) + inner(depth + 2);
	bpf_preempt_enable();
	drop(plain);
	return result;
}

SEC("tc")
int frames(__unused struct __sk_buff *skb)
{
	struct plain *plain = new (struct plain);
	int result;

	if (!plain)
		return -1;
	bpf_rcu_read_lock();
	result = middle(1) + middle(2);
	bpf_rcu_read_unlock();
	drop(plain);
	return result;
}

__noinline int handle(__u64 cookie)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 16, 0);

	if (!record)
		return 7;
	host(9);
	ROUNDS(5);
	*record = cookie;
	bpf_ringbuf_submit(record, 0);
	return 7;
}

static __noinline int thrower(__u64 cookie)
{
	ROUNDS(3);
	host(1);
	if (cookie & 1)
		bpf_throw(cookie);
	return 0;
}

// Holds in its exception callback, and looks behind calls for exceptions and ends alike.
SEC("tc")
__exception_cb(handle) int throws(__unused struct __sk_buff *skb)
{
	int result = thrower(2);

	ROUNDS(3);
	return result + thrower(steps | 1);
}

static __noinline int leave(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &programs, 0);
	return 1;
}

// The program that it calls ends in the place of one of its functions.
SEC("tc")
int calls(struct __sk_buff *skb)
{
	ROUNDS(3);
	leave(skb);
	ROUNDS(3);
	host(1);
	return 0;
}

// Five million calls without a loop: the verifier walks global functions one by one.
#define FIVE(call) call + call + call + call + call
#define FORTY(call) FIVE(call) + FIVE(call) + FIVE(call) + FIVE(call) + FIVE(call) + FIVE(call) + FIVE(call) + FIVE(call)

__noinline int product_4(void)
{
	*(volatile __u64 *)&steps += 1;
	return 0;
}

__noinline int product_3(void)
{
	return FORTY(product_4());
}

__noinline int product_2(void)
{
	return FORTY(product_3());
}

__noinline int product_1(void)
{
	return FORTY(product_2());
}

SEC("tc")
int product(__unused struct __sk_buff *skb)
{
	return FORTY(product_1()) + FORTY(product_1());
}

SEC("syscall")
int masks(__unused void *context)
{
	__u32 zero = 0;
	struct kept *kept = bpf_map_lookup_elem(&keeps, &zero);
	struct bpf_cpumask *mask, *old;

	if (!kept)
		return -1;
	mask = bpf_cpumask_create();
	if (!mask)
		return -1;
	ROUNDS(3);
	host(3);
	old = bpf_cpumask_acquire(mask);
	host(4);
	bpf_cpumask_release(old);
	old = bpf_kptr_xchg(&kept->mask, mask);
	host(5);
	if (old)
		bpf_cpumask_release(old);
	return 0;
}

SEC("syscall")
int machine(__unused void *context)
{
	struct task_struct *task;
	struct cgroup *group;

	task = bpf_task_from_pid(8);
	if (!task)
		return -1;
	host(1);
	ROUNDS(3);
	group = bpf_cgroup_from_id(2);
	if (group) {
		host(2);
		ROUNDS(3);
		bpf_cgroup_release(group);
	}
	bpf_task_release(task);
	return 0;
}

// May sleep, and is in sections of its own.
SEC("syscall")
int sections(__unused void *context)
{
	bpf_rcu_read_lock();
	host(1);
	ROUNDS(5);
	bpf_rcu_read_unlock();
	bpf_preempt_disable();
	bpf_preempt_disable();
	host(2);
	ROUNDS(5);
	bpf_preempt_enable();
	bpf_preempt_enable();
	host(3);
	return 0;
}
