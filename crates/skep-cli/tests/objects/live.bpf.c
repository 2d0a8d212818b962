/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/*
 * Frames of an EtherType for experiments say by their first byte what to do with them: 0 pass, 1 drop, 2 send back with
 * the addresses exchanged, 3 redirect to `target`. A tag (802.1Q) may come before it. All other frames pass.
 */
#define EXPERIMENT bpf_htons(0x88b5)

volatile const __u32 target;

/* By command; the last one counts tags. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

struct command {
	__be16 protocol;
	__u8 number;
} __attribute__((packed));

static __always_inline void count(__u32 key)
{
	__u64 *counter = bpf_map_lookup_elem(&seen, &key);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

static __always_inline int command(void *data, void *end, int *tagged)
{
	struct ethhdr *eth = data;
	struct command *command = data + 2 * ETH_ALEN;

	*tagged = 0;
	if ((void *)(eth + 1) > end)
		return -1;
	if (eth->h_proto == bpf_htons(ETH_P_8021Q)) {
		*tagged = 1;
		command = (void *)command + 4;
	}
	if ((void *)(command + 1) > end || command->protocol != EXPERIMENT)
		return -1;
	count(command->number & 3);
	return command->number & 3;
}

static __always_inline void exchange(struct ethhdr *eth)
{
	__u8 source[ETH_ALEN];

	__builtin_memcpy(source, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, source, ETH_ALEN);
}

SEC("xdp")
int live(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int tagged, number = command(data, end, &tagged);

	if (tagged)
		count(7);
	switch (number) {
	case 1:
		return XDP_DROP;
	case 2:
		exchange(data);
		return XDP_TX;
	case 3:
		return bpf_redirect(target, 0);
	}
	return XDP_PASS;
}

SEC("tc")
int classify(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	int tagged, number = command(data, end, &tagged);

	if (skb->vlan_present)
		count(7);
	switch (number) {
	case 1:
		return TC_ACT_SHOT;
	case 2:
		exchange(data);
		return bpf_redirect(skb->ifindex, 0);
	case 3:
		return bpf_redirect(target, 0);
	}
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
