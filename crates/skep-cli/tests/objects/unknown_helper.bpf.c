/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static long (*const no_such_helper)(void) = (void *)9999;

SEC("xdp")
int calls_nobody(struct xdp_md *ctx __attribute__((unused)))
{
	return no_such_helper() ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
