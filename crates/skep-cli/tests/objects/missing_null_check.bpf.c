/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Dereferences the result of a look-up without a null check: every verifier must refuse it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

SEC("xdp")
int careless(struct xdp_md *ctx)
{
	__u32 key = ctx->rx_queue_index;
	__u64 *count = bpf_map_lookup_elem(&counters, &key);

	*count += 1;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
