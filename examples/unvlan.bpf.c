/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Removes the outer VLAN tag from every tagged frame: moves the two MAC addresses over the tag and then the start of
 * the packet (bpf_xdp_adjust_head), and pads frames that become too short for Ethernet (bpf_xdp_adjust_tail).
 */
#include "common.h"

#define SHORTEST_FRAME 60

__u64 untagged;

SEC("xdp")
int unvlan(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	__u8 addresses[2 * ETH_ALEN];
	long missing;

	if (data + sizeof(*eth) + sizeof(struct vlan_tag) > end || !is_vlan(eth->h_proto))
		return XDP_PASS;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	__builtin_memcpy(data + sizeof(struct vlan_tag), addresses, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, sizeof(struct vlan_tag)))
		return XDP_ABORTED;
	__sync_fetch_and_add(&untagged, 1);

	/* The old pointers are invalid now. */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	missing = SHORTEST_FRAME - (end - data);
	if (missing > 0 && bpf_xdp_adjust_tail(ctx, missing))
		return XDP_ABORTED;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
