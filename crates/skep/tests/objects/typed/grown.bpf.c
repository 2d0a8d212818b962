// SPDX-License-Identifier: MIT OR Apache-2.0
// The next version of typed.bpf.c: structures have grown, shrunk and moved.
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
	__u64 bytes;
	__u64 packets;
	__u64 errors; // new
};

struct flow {
	enum state state;
	__s8 score; // narrower
	__u64 first_seen; // new
	struct direction directions[2];
	char name[16]; // longer
	__u16 flags : 4;
	// no ttl, no mark
};

struct event {
	__u32 number;
	__u32 length;
};

struct prefix {
	__u32 bits;
	__u8 address[4];
};

struct settings {
	__u32 burst;
	__u64 rate;
	__u32 window;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow_key);
	__type(value, struct flow);
	__uint(max_entries, 128);
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

const volatile __u32 scale = 3;
__u64 limit; // wider
__u64 seen;
struct settings settings = { .window = 60 };

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct flow_key key = { .source = 0x0a000001, .port = 80, .protocol = 6 };
	struct event job = { .number = ctx->ingress_ifindex };
	struct prefix any = {};
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	int zero = 0;

	__sync_fetch_and_add(&seen, scale);
	bpf_map_pop_elem(&jobs, &job);
	bpf_map_lookup_elem(&routes, &any);
	bpf_map_lookup_elem(&totals, &zero);
	if (flow)
		flow->first_seen = settings.rate + settings.burst + settings.window;
	return seen > limit ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
