/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("no_such_hook/here")
int lost(void *ctx __attribute__((unused)))
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
