/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program with a mistake, and one that judges its verdicts. The mistake takes two packets to show: the second frame
 * of a type in a row is dropped, although only frames of type 0x88b5 should be.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

__u16 last_type;

SEC("xdp")
int judged(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(0x88b5))
		return XDP_DROP;
	if (eth->h_proto == last_type)
		return XDP_DROP;
	last_type = eth->h_proto;
	return XDP_PASS;
}

SEC("xdp")
int judge(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *verdict = data;
	struct ethhdr *eth = data + sizeof(*verdict);

	if ((void *)(eth + 1) > end)
		return 3;
	return (*verdict == XDP_DROP) == (eth->h_proto == bpf_htons(0x88b5)) ? 1 : 2;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
