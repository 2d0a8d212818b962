/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

extern int CONFIG_HZ __kconfig;

SEC("xdp")
int configured(struct xdp_md *ctx __attribute__((unused)))
{
	return CONFIG_HZ == 250 ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
