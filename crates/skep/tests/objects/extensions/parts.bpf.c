// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that replace functions of chain.bpf.c, or watch them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct pair {
	__u32 a;
	__u32 b;
};

struct other {
	__u32 a;
	__u32 b;
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} after SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} counts SEC(".maps");

// What watchers saw.
__u64 entries;
__u64 exits;
__u64 arguments[5];
__u64 result;

SEC("freplace/first")
int drops(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_DROP;
}

// Calls helpers and a function of its own, and uses the stack.
SEC("freplace/first")
int counts_and_passes(struct xdp_md *ctx)
{
	(void)ctx;
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (!count)
		return XDP_ABORTED;
	__sync_fetch_and_add(count, 1);
	return bpf_get_smp_processor_id() < 100000 ? XDP_PASS : XDP_ABORTED;
}

SEC("freplace/sum")
int product(int a, __u64 b, struct pair *pair, __u32 *more, int last)
{
	if (!pair || !more)
		return 0;
	pair->a += 1;
	return a * b * pair->b * *more * (last == 60000);
}

SEC("freplace/first")
int tail_calls(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &after, 0);
	return XDP_TX;
}

SEC("freplace/first")
int moves_head(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 4) ? XDP_ABORTED : XDP_PASS;
}

// `reads` may be given constants.
SEC("freplace/reads")
int writes(struct pair *pair)
{
	if (!pair)
		return 0;
	pair->a = 7;
	return 430;
}

SEC("freplace/reads")
int reads_too(const struct pair *pair)
{
	return pair ? pair->b + 30 : 0;
}

// Arguments and results of other types than those of `sum` and `first`.
SEC("freplace/sum")
int fewer(int a, __u64 b, struct pair *pair, __u32 *more)
{
	(void)a;
	(void)b;
	(void)pair;
	(void)more;
	return 0;
}

SEC("freplace/sum")
int wider(__u64 a, __u64 b, struct pair *pair, __u32 *more, int last)
{
	(void)a;
	(void)b;
	(void)pair;
	(void)more;
	(void)last;
	return 0;
}

SEC("freplace/sum")
int otherwise(int a, __u64 b, struct other *pair, __u32 *more, int last)
{
	(void)a;
	(void)b;
	(void)pair;
	(void)more;
	(void)last;
	return 0;
}

SEC("freplace/first")
void nothing(struct xdp_md *ctx)
{
	(void)ctx;
}

SEC("freplace/first")
int of_skb(struct __sk_buff *ctx)
{
	(void)ctx;
	return 0;
}

SEC("fentry/sum")
int sees_arguments(__u64 *ctx)
{
	__sync_fetch_and_add(&entries, 1);
	for (int i = 0; i < 5; i++)
		arguments[i] = i < 2 || i == 4 ? ctx[i] : ctx[i] != 0;
	return 0;
}

SEC("fexit/sum")
int sees_result(__u64 *ctx)
{
	__sync_fetch_and_add(&exits, 1);
	result = ctx[5];
	return 0;
}

SEC("fentry/first")
int enters(__u64 *ctx)
{
	(void)ctx;
	__sync_fetch_and_add(&entries, 1);
	return 0;
}

SEC("fexit/first")
int returns(__u64 *ctx)
{
	__sync_fetch_and_add(&exits, 1);
	result = ctx[1];
	return 0;
}

// There is no such argument.
SEC("fexit/first")
int beyond(__u64 *ctx)
{
	result = ctx[2];
	return 0;
}

// Reads what the argument points to, which has no type here.
SEC("fentry/first")
int follows(__u64 *ctx)
{
	result = *(__u64 *)ctx[0];
	return 0;
}
