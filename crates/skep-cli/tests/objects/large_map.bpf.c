/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* A map of 64 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 20);
	__type(key, __u32);
	__type(value, __u64[8]);
} large SEC(".maps");

SEC("xdp")
int counts(struct xdp_md *ctx)
{
	__u32 key = ctx->rx_queue_index;
	__u64 *count = bpf_map_lookup_elem(&large, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
