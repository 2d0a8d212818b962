/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Maps of many kinds and types that `skep run --map` fills: the program passes packets on if they hold what the test gave. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

enum verdict { VERDICT_DROP = 1, VERDICT_FORWARD = 3 };

struct rule {
	__u16 port;
	__u8 protocol;
	char name[8];
};

struct action {
	enum verdict verdict;
	__s32 delta;
	union {
		__u32 v4;
		__u8 v6[16];
	};
	__u32 urgent : 1;
	__u32 level : 7;
	bool on;
	__u64 big;
};

struct prefix {
	__u32 length;
	__u8 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, struct rule);
	__type(value, struct action);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 4);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__uint(value_size, 3);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4);
	__type(value, __u16);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} calls SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct inner);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} idle SEC(".maps");

const volatile __u32 limit = 7;

SEC("xdp")
int checks(struct xdp_md *ctx)
{
	struct rule rule = {.port = 80, .protocol = 6, .name = "eth0"};
	struct prefix prefix = {.length = 32, .address = {10, 1, 2, 3}};
	__u32 one = 1;
	struct action *action = bpf_map_lookup_elem(&rules, &rule);
	if (!action || action->verdict != VERDICT_FORWARD || action->delta != -5 || action->v4 != 0x01020304)
		return XDP_ABORTED;
	if (action->urgent || action->level != 77 || !action->on)
		return XDP_ABORTED;
	__u64 *count = bpf_map_lookup_elem(&counts, &one);
	if (!count || *count < limit)
		return XDP_ABORTED;
	*count += 1;
	__u8 *route = bpf_map_lookup_elem(&routes, &prefix);
	if (!route || route[2] != 0xab)
		return XDP_ABORTED;
	void *table = bpf_map_lookup_elem(&tables, &one);
	__u32 *nine = table ? bpf_map_lookup_elem(table, &one) : 0;
	if (!nine || *nine != 9)
		return XDP_ABORTED;
	__u16 job;
	if (bpf_map_peek_elem(&jobs, &job) || job != 513)
		return XDP_ABORTED;
	bpf_tail_call(ctx, &calls, 2);
	return XDP_DROP;
}

SEC("xdp")
int forwards(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
