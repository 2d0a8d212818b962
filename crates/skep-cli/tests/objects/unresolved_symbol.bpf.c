/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

extern int defined_elsewhere(int number);

SEC("xdp")
int incomplete(struct xdp_md *ctx __attribute__((unused)))
{
	return defined_elsewhere(1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
