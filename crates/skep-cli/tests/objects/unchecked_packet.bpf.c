/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Reads the packet without a bounds check. */
SEC("xdp")
int hasty(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;

	return data[12] == 8 ? XDP_DROP : XDP_PASS;
}

/* Checks first; in the same object. */
SEC("xdp")
int patient(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;
	unsigned char *end = (void *)(long)ctx->data_end;

	if (data + 14 > end)
		return XDP_DROP;
	return data[12] == 8 ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
