// SPDX-License-Identifier: MIT OR Apache-2.0
/* A constant format that is wrong: refused before anything runs. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

char out[128];

SEC("xdp")
int wrong(struct xdp_md *ctx __attribute__((unused)))
{
	return BPF_SNPRINTF(out, sizeof out, "%f", 1);
}
