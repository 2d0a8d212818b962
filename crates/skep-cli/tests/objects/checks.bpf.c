/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tests in C that end in each way, and one that writes results of its parts as Cilium's macros encode them.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, 64);
} suite_result_map SEC(".maps");

SEC("xdp/test/passes/check")
int passes(struct xdp_md *ctx)
{
	(void)ctx;
	return 1;
}

SEC("xdp/test/fails/check")
int fails(struct xdp_md *ctx)
{
	(void)ctx;
	bpf_printk("why it failed");
	return 2;
}

SEC("xdp/test/skips/check")
int skips(struct xdp_md *ctx)
{
	(void)ctx;
	return 3;
}

SEC("xdp/test/breaks/check")
int breaks(struct xdp_md *ctx)
{
	(void)ctx;
	return 0;
}

/* A part called "half" that failed. */
SEC("xdp/test/parts/check")
int parts(struct xdp_md *ctx)
{
	static const char message[] = { 0x0a, (char)0x89, 0, 0x0a, 5, 'h', 'a', 'l', 'f', 0, 0x10, 2 };
	__u32 key = 0;
	char *results = bpf_map_lookup_elem(&suite_result_map, &key);

	(void)ctx;
	if (!results)
		return 0;
	for (unsigned int i = 0; i < sizeof(message); i++)
		results[i] = message[i];
	return 1;
}

SEC("tc/test/sees_the_status/setup")
int sees_setup(struct __sk_buff *skb)
{
	(void)skb;
	return 7;
}

SEC("tc/test/sees_the_status/check")
int sees_check(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;

	if (data + 4 + 3520 > (void *)(long)skb->data_end)
		return 2;
	return *(__u32 *)data == 7 ? 1 : 2;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
