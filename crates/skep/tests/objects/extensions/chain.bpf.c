// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose global functions other programs replace and watch.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct pair {
	__u32 a;
	__u32 b;
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} next SEC(".maps");

// How often the functions ran themselves.
__u64 firsts;
__u64 seconds;

__attribute__((noinline)) int first(struct xdp_md *ctx)
{
	if (!ctx)
		return XDP_ABORTED;
	__sync_fetch_and_add(&firsts, 1);
	return XDP_PASS;
}

__attribute__((noinline)) int second(struct xdp_md *ctx)
{
	if (!ctx)
		return XDP_ABORTED;
	__sync_fetch_and_add(&seconds, 1);
	return XDP_PASS;
}

__attribute__((noinline)) int sum(int a, __u64 b, struct pair *pair, __u32 *more, int last)
{
	if (!pair || !more)
		return 0;
	// Another function may be in its place: the compiler must not conclude from this one what it leaves alone.
	asm volatile("" ::"r"(pair), "r"(more) : "memory");
	return a + b + pair->a + pair->b + *more + last;
}

// Reads its argument alone: callers may give it constants.
__attribute__((noinline)) int reads(const struct pair *pair)
{
	if (!pair)
		return 0;
	asm volatile("" ::"r"(pair) : "memory");
	return pair->a + pair->b;
}

// Its callers expect that it may move the packet.
__attribute__((noinline)) int moves(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 0);
}

static __attribute__((noinline)) int hidden(struct xdp_md *ctx)
{
	return ctx->ingress_ifindex > 1000 ? XDP_DROP : XDP_PASS;
}

// In the way of a dispatcher: the next one runs only if the packet passed.
SEC("xdp")
int chain(struct xdp_md *ctx)
{
	int verdict = first(ctx);

	if (verdict != XDP_PASS)
		return verdict;
	verdict = second(ctx);
	if (verdict != XDP_PASS)
		return verdict;
	return hidden(ctx);
}

SEC("xdp")
int adds(struct xdp_md *ctx)
{
	// Kept over the call, whatever is called.
	__u64 kept = ctx->ingress_ifindex + 7;
	struct pair pair = { .a = 30, .b = 400 };
	__u32 more = 5000;
	int total = reads(&pair) - 430 + sum(1, 2, &pair, &more, 60000);

	if (moves(ctx))
		return 0;
	return total + (kept - ctx->ingress_ifindex - 7) + pair.a - 30;
}

// The last of its calls leaves it.
SEC("xdp")
int leaves(struct xdp_md *ctx)
{
	int verdict = first(ctx);

	if (verdict != XDP_PASS)
		return verdict;
	bpf_tail_call(ctx, &next, 0);
	return XDP_TX;
}

__u64 turned;

// Calls itself.
SEC("xdp")
int turns(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&turned, 1);
	bpf_tail_call(ctx, &next, 1);
	return XDP_PASS;
}

static long each(__u64 index, void *context)
{
	(void)index;
	struct xdp_md *ctx = *(struct xdp_md **)context;

	return first(ctx) == XDP_DROP;
}

// `first` is called by a callback.
SEC("xdp")
int loops(struct xdp_md *ctx)
{
	void *context = ctx;

	return bpf_loop(10, each, &context, 0);
}

SEC("tc")
int classifies(struct __sk_buff *skb)
{
	return skb->len == 1;
}
