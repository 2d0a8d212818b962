/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * clang: -Os
 *
 * Socket filters: they see a copy of the packet's description, and bytes by calls and by the old loads alone.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>

unsigned long long load_byte(void *skb, unsigned long long offset) asm("llvm.bpf.load.byte");
unsigned long long load_half(void *skb, unsigned long long offset) asm("llvm.bpf.load.half");
unsigned long long load_word(void *skb, unsigned long long offset) asm("llvm.bpf.load.word");

struct pair {
	__be32 source, target;
};

struct totals {
	__u64 packets, bytes;
};

MAP(PERCPU_HASH, 4096, struct pair, struct totals) pairs SEC(".maps");
MAP(ARRAY, 256, __u32, __u64) protocols SEC(".maps");
MAP(PERF_EVENT_ARRAY, 0, __u32, __u32) events SEC(".maps");

SEC("socket")
int by_protocol(struct __sk_buff *skb)
{
	__u32 index = load_byte(skb, ETH_HLEN + offsetof(struct iphdr, protocol));
	__u64 *bytes;

	if (skb->pkt_type != 4 /* outgoing */)
		return 0;
	bytes = bpf_map_lookup_elem(&protocols, &index);
	if (bytes)
		__sync_fetch_and_add(bytes, skb->len);
	return 0;
}

SEC("socket")
int by_pair(struct __sk_buff *skb)
{
	struct totals *totals, fresh = { 1, skb->len };
	struct iphdr ip;
	struct pair pair;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return skb->len;
	if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
		return 0;
	pair.source = ip.saddr;
	pair.target = ip.daddr;
	totals = bpf_map_lookup_elem(&pairs, &pair);
	if (!totals) {
		bpf_map_update_elem(&pairs, &pair, &fresh, BPF_NOEXIST);
		return skb->len;
	}
	totals->packets++;
	totals->bytes += skb->len;
	return skb->len;
}

/* The start of the first line of a request, if the segment has one. */
SEC("socket")
int request(struct __sk_buff *skb)
{
	__u32 ip = load_byte(skb, ETH_HLEN) & 15, start;
	char line[7] = {};

	if (load_half(skb, 12) != ETH_P_IP || load_byte(skb, ETH_HLEN + 9) != IPPROTO_TCP)
		return 0;
	start = ETH_HLEN + ip * 4;
	start += (load_byte(skb, start + 12) >> 4) * 4;
	if (start > skb->len || skb->len - start < sizeof(line))
		return 0;
	for (int i = 0; i < (int)sizeof(line); i++)
		line[i] = load_byte(skb, start + i);
	if (bpf_strncmp(line, 3, "GET") && bpf_strncmp(line, 4, "POST"))
		return 0;
	return -1;
}

SEC("socket")
int reported(struct __sk_buff *skb)
{
	struct {
		__u64 at;
		__u32 hash, length;
	} event = {};
	__u64 size = skb->len;

	event.at = bpf_ktime_get_ns();
	event.hash = skb->hash;
	event.length = skb->len;
	if (size > 0xfff)
		size = 0xfff;
	bpf_perf_event_output(skb, &events, size << 32 | BPF_F_CURRENT_CPU, &event, sizeof(event));
	return 0;
}

/* A filter's copy has no ends of the packet. */
SEC("socket")
int bad_direct_access(struct __sk_buff *skb)
{
	__u8 *at = BEGIN(skb);

	if (at + 1 > (__u8 *)END(skb))
		return 0;
	return *at;
}

/* Nor may it mark the packet. */
SEC("socket")
int bad_mark(struct __sk_buff *skb)
{
	skb->mark = 1;
	return skb->len;
}

/* Packets are sent on by others. */
SEC("socket")
int bad_helper(struct __sk_buff *skb)
{
	return bpf_redirect(skb->ifindex, 0);
}

/* The copied bytes do not fit. */
SEC("socket")
int bad_copy(struct __sk_buff *skb)
{
	char start[16];

	if (bpf_skb_load_bytes(skb, 0, start, sizeof(start) + 1))
		return 0;
	return start[0];
}

/* The old loads want the context where they look for it. */
SEC("socket")
__attribute__((naked)) int bad_old_load(struct __sk_buff *skb __attribute__((unused)))
{
	asm volatile("r6 = 0\n"
		     "r0 = *(u8 *)skb[14]\n"
		     "exit\n");
}
