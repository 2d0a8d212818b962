/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* A kind of map that Linux has and this runtime does not provide. */
struct {
	__uint(type, BPF_MAP_TYPE_INODE_STORAGE);
	__uint(max_entries, 16);
	__uint(key_size, 4);
	__uint(value_size, 64);
} inodes SEC(".maps");

SEC("xdp")
int looks_at_inodes(struct xdp_md *ctx __attribute__((unused)))
{
	__u32 key = 0;

	return bpf_map_delete_elem(&inodes, &key) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
