/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * clang: -O1
 *
 * Functions of several kinds: static ones, global ones by their prototypes, callbacks, tail calls; and the stack that
 * all of them share.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

struct point {
	__s32 x, y;
};

struct task {
	struct bpf_timer timer;
	__u64 due, fired;
};

struct sum {
	__u64 total;
	__u32 count, limit;
};

MAP(ARRAY, 64, __u32, struct point) points SEC(".maps");
MAP(HASH, 64, __u32, struct task) tasks SEC(".maps");
MAP(PROG_ARRAY, 4, __u32, __u32) stages SEC(".maps");
MAP(PERCPU_ARRAY, 1, __u32, struct sum) scratch SEC(".maps");

static __noinline int magnitude(const struct point *point)
{
	return point->x * point->x + point->y * point->y;
}

__noinline int distance(const struct point *a, const struct point *b)
{
	struct point difference;

	if (!a || !b)
		return -1;
	difference.x = a->x - b->x;
	difference.y = a->y - b->y;
	return magnitude(&difference);
}

__noinline int clamped(int value, int low, int high)
{
	return value < low ? low : value > high ? high : value;
}

/* By its context: the whole of the packet can be reached from it. */
__noinline int ether_type(struct xdp_md *ctx)
{
	struct ethhdr *eth = BEGIN(ctx);

	return (void *)(eth + 1) > END(ctx) ? -1 : bpf_ntohs(eth->h_proto);
}

SEC("xdp")
int measured(struct xdp_md *ctx)
{
	struct point here = { ctx->rx_queue_index, ctx->ingress_ifindex }, *there;
	__u32 key = clamped(ether_type(ctx), 0, 63);

	there = bpf_map_lookup_elem(&points, &key);
	return distance(&here, there) > 1000 ? XDP_DROP : XDP_PASS;
}

/* What a global function returns is any number, so it is compared again. */
SEC("xdp")
int compared_again(struct xdp_md *ctx)
{
	static const char names[4] = "abc";
	int index = clamped(ctx->rx_queue_index, 0, 3);
	volatile char copy[4];

	__builtin_memcpy((void *)copy, names, 4);
	barrier_var(index);
	if (index < 0 || index > 3)
		return XDP_ABORTED;
	return copy[index] == 'c' ? XDP_DROP : XDP_PASS;
}

static long adds(void *map, const __u32 *key, struct point *point, struct sum *sum)
{
	(void)map;
	if (*key >= sum->limit)
		return 1;
	sum->total += magnitude(point);
	sum->count++;
	return 0;
}

SEC("tc")
int summed(struct __sk_buff *skb)
{
	struct sum sum = { .limit = skb->mark };

	bpf_for_each_map_elem(&points, adds, &sum, 0);
	return sum.total > 1 << 20 && sum.count > 3 ? TC_ACT_SHOT : TC_ACT_OK;
}

static long inner(__u32 index, __u64 *total)
{
	*total += index;
	return *total > 10000;
}

static long outer(__u32 index, __u64 *total)
{
	return bpf_loop(index & 15, inner, total, 0) < 0;
}

SEC("tc")
int nested(struct __sk_buff *skb)
{
	__u64 total = 0;

	bpf_loop(skb->len, outer, &total, 0);
	return total & 1 ? TC_ACT_SHOT : TC_ACT_OK;
}

static int fire(void *map, __u32 *key, struct task *task)
{
	(void)map;
	task->fired++;
	if (*key & 1)
		bpf_timer_start(&task->timer, 1000000, 0);
	return 0;
}

SEC("tc")
int armed(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct task fresh = {}, *task;

	bpf_map_update_elem(&tasks, &key, &fresh, BPF_NOEXIST);
	task = bpf_map_lookup_elem(&tasks, &key);
	if (!task)
		return TC_ACT_OK;
	if (bpf_timer_init(&task->timer, &tasks, 1) == 0) {
		bpf_timer_set_callback(&task->timer, fire);
		task->due = bpf_ktime_get_ns() + 1000000;
		bpf_timer_start(&task->timer, 1000000, 0);
	}
	return TC_ACT_OK;
}

static __noinline int next_stage(struct __sk_buff *skb, __u32 stage)
{
	char note[128];

	note[stage & 127] = stage;
	barrier_var(stage);
	bpf_tail_call(skb, &stages, stage);
	return note[stage & 127];
}

static __noinline void any_stage(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &stages, skb->mark);
}

SEC("tc")
int staged(struct __sk_buff *skb)
{
	skb->cb[0] = 1;
	if (next_stage(skb, skb->protocol == bpf_htons(ETH_P_IP) ? 1 : 2) == 1)
		return TC_ACT_OK;
	next_stage(skb, 3);
	return TC_ACT_SHOT;
}

/* Linux wants the function that makes a tail call to return a number, whether or not somebody looks at it. */
SEC("tc")
int staged_by_nothing(struct __sk_buff *skb)
{
	any_stage(skb);
	return TC_ACT_SHOT;
}

/* Three frames of 200 bytes are more than 512. */
#define DEEP(name, call)                                                \
	static __noinline int name(__u32 seed)                          \
	{                                                               \
		volatile __u8 room[200];                                \
									\
		for (int i = 0; i < 200; i++)                           \
			room[i] = seed + i;                             \
		return room[seed % 200 < 200 ? 7 : 8] + call;           \
	}
DEEP(bottom, 0)
DEEP(middle, bottom(seed))
DEEP(top, middle(seed))

SEC("tc")
int bad_stack_of_three(struct __sk_buff *skb)
{
	return top(skb->len) & TC_ACT_SHOT;
}

/* Each calls the other. */
static __noinline int odd(volatile __u32 *n);

static __noinline int even(volatile __u32 *n)
{
	return *n == 0 ? 1 : (--*n, odd(n) ^ (int)*n);
}

static __noinline int odd(volatile __u32 *n)
{
	return *n == 0 ? 0 : (--*n, even(n) ^ (int)*n);
}

SEC("tc")
int bad_recursion(struct __sk_buff *skb)
{
	volatile __u32 n = skb->len & 3;

	return even(&n) ? TC_ACT_SHOT : TC_ACT_OK;
}

/* Global functions are verified by their prototypes: the pointer may be null. */
__noinline int bad_by_itself(struct point *point)
{
	return point->x;
}

SEC("tc")
int bad_argument_unchecked(struct __sk_buff *skb)
{
	struct point point = { skb->len, 2 };

	return bad_by_itself(&point);
}

/* The callee wants eight bytes and is given four. */
SEC("tc")
int bad_half_a_point(struct __sk_buff *skb)
{
	__s32 x = skb->len;

	barrier_var(x);
	return distance((struct point *)&x, (struct point *)&x);
}

/* A callback says 0 for go on, or 1 for enough. */
static long says_two(__u32 index, void *ctx)
{
	(void)ctx;
	return index > 5 ? 2 : 0;
}

SEC("tc")
int bad_answer_of_a_callback(struct __sk_buff *skb)
{
	bpf_loop(skb->len, says_two, 0, 0);
	return TC_ACT_OK;
}

/* The callback writes one further each round, and nobody says how far. */
struct list {
	__u32 used, entries[8];
};

static long appends(__u32 index, struct list *list)
{
	list->entries[list->used++] = index;
	return 0;
}

SEC("tc")
int bad_list_that_grows(struct __sk_buff *skb)
{
	struct list list = {};

	bpf_loop(skb->len, appends, &list, 0);
	return list.entries[3] & TC_ACT_SHOT;
}

/* A timer belongs to the map that it lies in. */
SEC("tc")
int bad_timer_of_another_map(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct task *task = bpf_map_lookup_elem(&tasks, &key);

	if (task)
		bpf_timer_init(&task->timer, &points, 1);
	return TC_ACT_OK;
}

/* Timers are for calls alone. */
SEC("tc")
int bad_timer_cleared(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct task *task = bpf_map_lookup_elem(&tasks, &key);

	if (task)
		__builtin_memset(task, 0, sizeof(*task));
	return TC_ACT_OK;
}
