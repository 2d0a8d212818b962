// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps and variables of many types, for typed views, JSON, skeletons and upgrades; records for events.
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum state { STATE_NEW, STATE_OPEN, STATE_CLOSED = 7 };

struct flow_key {
	__u32 source;
	__u16 port;
	__u8 protocol;
	bool local;
};

struct direction {
	__u64 packets;
	__u64 bytes;
};

struct flow {
	struct direction directions[2];
	enum state state;
	__s32 score;
	char name[8];
	__u8 ttl;
	__u16 flags : 3, mark : 5;
};

struct prefix {
	__u32 bits;
	__u8 address[4];
};

struct settings {
	__u64 rate;
	__u32 burst;
	bool enabled;
};

struct event {
	__u32 number;
	__u32 length;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow_key);
	__type(value, struct flow);
	__uint(max_entries, 64);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, int);
	__type(value, struct direction);
	__uint(max_entries, 4);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u32);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, struct event);
	__uint(max_entries, 4);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

const volatile __u32 scale = 2;

__u32 limit;
__u64 seen;
__s64 balance = -5;
struct settings settings = { .rate = 1000, .burst = 10 };

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u64 length = ctx->data_end - ctx->data;
	struct flow_key key = { .source = 0x0a000001, .port = 80, .protocol = 6 };
	struct direction *total;
	struct event *event;
	struct flow *flow;
	int zero = 0;

	__sync_fetch_and_add(&seen, 1);
	total = bpf_map_lookup_elem(&totals, &zero);
	if (total) {
		total->packets++;
		total->bytes += length * scale;
	}
	flow = bpf_map_lookup_elem(&flows, &key);
	if (flow) {
		flow->directions[0].packets++;
		flow->state = 99; // not a value of the enumeration
	}
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (event) {
		event->number = seen;
		event->length = length;
		bpf_ringbuf_submit(event, 0);
	}
	return limit && seen > limit ? XDP_DROP : XDP_PASS;
}

// Records that ask for no wake-up (1) or for one in any case (2), by the first byte.
SEC("xdp")
int quiet(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	struct event event = { .number = 1 };

	if (data + 1 > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	return bpf_ringbuf_output(&events, &event, sizeof(event), *data & 3) ? XDP_DROP : XDP_PASS;
}

// Adds to a variable while the host sets others.
SEC("xdp")
int spin(struct xdp_md *ctx)
{
	int i, rounds = ctx->data_end > ctx->data ? 1000 : 1;

	for (i = 0; i < rounds; i++)
		__sync_fetch_and_add(&seen, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
