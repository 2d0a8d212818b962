/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A map of maps whose initial element is larger than its template. By the template, for_each makes four calls, and the
 * callback stays in the 64 bytes of its buffer.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct template {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1000000);
	__type(key, __u32);
	__type(value, __u64);
} large SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct template);
} outer SEC(".maps") = {
	.values = { (void *)&large },
};

struct seen {
	__u64 at;
	__u8 bytes[64];
};

static long mark(void *map, __u32 *key, __u64 *value, struct seen *seen)
{
	(void)map, (void)key, (void)value;
	seen->bytes[seen->at] = 1;
	seen->at += 16;
	return 0;
}

SEC("xdp")
int marks(struct xdp_md *ctx)
{
	struct seen seen = {};
	__u32 key = 0;
	void *inner = bpf_map_lookup_elem(&outer, &key);

	(void)ctx;
	if (!inner)
		return XDP_DROP;
	bpf_for_each_map_elem(inner, mark, &seen, 0);
	return seen.bytes[48] ? XDP_PASS : XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
