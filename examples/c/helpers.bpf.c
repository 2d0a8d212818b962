/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Asks the host of examples/c/helpers.c for each packet's account, and charges it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* What skep_runtime_header prints of the host's functions. */
static int (*const account_of)(const void *address, __u64 size) = (void *) 1000;
static long (*const charge)(__u32 account, __u64 bytes) = (void *) 1001;

SEC("xdp")
int bill(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u8 address[4];
	int account;

	if (data + 34 > end)
		return XDP_DROP;
	__builtin_memcpy(address, data + 26, sizeof(address));
	account = account_of(address, sizeof(address));
	if (account < 0)
		return XDP_PASS; /* nobody's */
	return charge(account, end - data) < 0 ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "GPL";
