/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* A loop whose termination cannot be proved. */
SEC("xdp")
int endless(struct xdp_md *ctx)
{
	__u32 value = ctx->ingress_ifindex;

	while (value != 1) {
		value = value & 1 ? 3 * value + 1 : value / 2;
		asm volatile("" : "+r"(value)); /* what does nothing would be removed */
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
