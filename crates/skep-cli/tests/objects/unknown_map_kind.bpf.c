/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* A map of an unknown kind. */
struct {
	__uint(type, 9999);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} strange SEC(".maps");

SEC("xdp")
int uses_strange(struct xdp_md *ctx __attribute__((unused)))
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&strange, &key) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
