/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A map of each kind that Python has a class for, and programs that fill them.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(kind, entries, of_key, of_value)      \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);     \
		__type(key, of_key);              \
		__type(value, of_value);          \
	}

enum state { STATE_NEW, STATE_OPEN, STATE_CLOSED = 7 };

struct endpoint {
	__u8 address[4];
	__u16 port;
	bool local;
	__u8 unused;
};

struct flow {
	__u64 packets;
	__s32 score;
	enum state state;
	char name[8];
};

struct event {
	__u32 number;
	__u32 length;
};

struct prefix {
	__u32 bits;
	__u8 address[4];
};

MAP(HASH, 64, struct endpoint, struct flow) flows SEC(".maps");
MAP(HASH, 4, __u32, __u64) few SEC(".maps");
MAP(LRU_HASH, 64, __u32, __u64) recent SEC(".maps");
MAP(PERCPU_HASH, 8, __u32, __u64) per_cpu SEC(".maps");
MAP(PERCPU_ARRAY, 2, __u32, struct event) totals SEC(".maps");
MAP(ARRAY, 4, __u32, __s16) numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16);
	__type(key, struct prefix);
	__type(value, __u32);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4);
	__type(value, struct event);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 4);
	__type(value, __u32);
} undo SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 16);
	__type(value, __u32);
} seen_before SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, 4096);
} orders SEC(".maps");

int leaf(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__array(values, int(struct xdp_md *));
} stages SEC(".maps") = { .values = { [1] = &leaf } };

const volatile __u32 scale = 2;
const volatile char greeting[8] = "hello";

__u32 limit;
__u64 seen;
__s64 balance = -5;
struct endpoint last;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct event event = { .length = (ctx->data_end - ctx->data) * scale };
	struct event *total;
	__u32 zero = 0;

	event.number = __sync_fetch_and_add(&seen, 1);
	total = bpf_map_lookup_elem(&totals, &zero);
	if (total) {
		total->number++;
		total->length += event.length;
	}
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	bpf_perf_event_output(ctx, &samples, BPF_F_CURRENT_CPU, &event, sizeof(event));
	return limit && event.number >= limit ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int leaf(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_TX;
}

/* Goes on with the stage that the first byte names. */
SEC("xdp")
int root(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	if (data + 1 > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	bpf_tail_call(ctx, &stages, *data);
	return XDP_PASS;
}

SEC("xdp")
int prints(struct xdp_md *ctx)
{
	bpf_printk("packet of %d bytes", (int)(ctx->data_end - ctx->data));
	return XDP_PASS;
}

/* Moves the head, leaves metadata, sends the packet out of device 3. */
SEC("xdp")
int moves(struct xdp_md *ctx)
{
	__u32 *meta;

	if (bpf_xdp_adjust_head(ctx, 4) || bpf_xdp_adjust_meta(ctx, -4))
		return XDP_ABORTED;
	meta = (void *)(long)ctx->data_meta;
	if (meta + 1 > (__u32 *)(long)ctx->data)
		return XDP_ABORTED;
	*meta = 0x04030201;
	return bpf_redirect(3, 0);
}

static long order(struct bpf_dynptr *record, void *sum)
{
	__u32 number;

	if (!bpf_dynptr_read(&number, sizeof(number), record, 0, 0))
		*(__u64 *)sum += number;
	return 0;
}

/* Adds up the orders into `seen`. */
SEC("xdp")
int takes_orders(struct xdp_md *ctx __attribute__((unused)))
{
	__u64 sum = 0;

	bpf_user_ringbuf_drain(&orders, order, &sum, 0);
	seen += sum;
	return XDP_PASS;
}

static long nothing(__u32 index __attribute__((unused)), void *context __attribute__((unused)))
{
	return 0;
}

static long again(__u32 index __attribute__((unused)), void *context __attribute__((unused)))
{
	bpf_loop(1 << 23, nothing, (void *)0, 0);
	return 0;
}

/* Says that it has begun, and takes days. */
SEC("xdp")
int spins(struct xdp_md *ctx __attribute__((unused)))
{
	seen = 1;
	bpf_loop(1 << 23, again, (void *)0, 0);
	return XDP_PASS;
}

SEC("tc")
int marks(struct __sk_buff *skb)
{
	skb->mark += 1;
	skb->cb[1] = skb->vlan_tci;
	return -1; /* TC_ACT_UNSPEC */
}

SEC("cgroup/dev")
int only_disks(struct bpf_cgroup_dev_ctx *ctx)
{
	return ctx->major == 8;
}

/* Uses the other maps, so that they are made. */
SEC("tc")
int uses(struct __sk_buff *skb)
{
	struct endpoint key = { .port = 80 };
	struct prefix prefix = { .bits = 32 };
	struct event event = { .number = skb->len };
	__u32 number = skb->len;
	__u64 one = 1;

	last = key;
	bpf_map_lookup_elem(&flows, &key);
	bpf_map_lookup_elem(&routes, &prefix);
	bpf_map_lookup_elem(&numbers, &number);
	bpf_map_update_elem(&few, &number, &one, BPF_ANY);
	bpf_map_update_elem(&recent, &number, &one, BPF_ANY);
	bpf_map_update_elem(&per_cpu, &number, &one, BPF_ANY);
	bpf_map_push_elem(&jobs, &event, BPF_ANY);
	bpf_map_push_elem(&undo, &number, BPF_ANY);
	bpf_map_push_elem(&seen_before, &number, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
