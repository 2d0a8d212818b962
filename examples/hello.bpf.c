/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The smallest XDP program with a visible effect: it prints the length of each packet and passes it.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int hello(struct xdp_md *ctx)
{
	__u64 bytes = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	bpf_printk("hello, packet of %llu bytes", bytes);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
