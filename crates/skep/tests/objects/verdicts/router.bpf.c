/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * XDP routers: neighbours by the kernel's tables or by a trie, devices by a map.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

struct prefix {
	__u32 length;
	__be32 address;
};

struct hop {
	__u8 source[ETH_ALEN];
	__u8 target[ETH_ALEN];
	__u32 port;
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct hop);
} routes SEC(".maps");

MAP(DEVMAP, 64, __u32, __u32) ports SEC(".maps");
MAP(PERCPU_ARRAY, 8, __u32, __u64) outcomes SEC(".maps");

static __always_inline void count(__u32 outcome)
{
	__u64 *n = bpf_map_lookup_elem(&outcomes, &outcome);

	if (n)
		*n += 1;
}

/* One's complement: one less to live is 0x0100 more in the sum. */
static __always_inline void age(struct iphdr *ip)
{
	__u32 sum = (__u32)ip->check + bpf_htons(0x0100);

	ip->check = (__u16)(sum + (sum >= 0xffff));
	ip->ttl--;
}

SEC("xdp")
int by_kernel(struct xdp_md *ctx)
{
	void *end = END(ctx);
	struct ethhdr *eth = BEGIN(ctx);
	struct bpf_fib_lookup fib = {};
	struct ipv6hdr *ip6 = 0;
	struct iphdr *ip = 0;

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		if (ip->ttl <= 1)
			return XDP_PASS;
		fib.family = 2;
		fib.tos = ip->tos;
		fib.l4_protocol = ip->protocol;
		fib.tot_len = bpf_ntohs(ip->tot_len);
		fib.ipv4_src = ip->saddr;
		fib.ipv4_dst = ip->daddr;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		ip6 = (void *)(eth + 1);
		if ((void *)(ip6 + 1) > end)
			return XDP_DROP;
		if (ip6->hop_limit <= 1)
			return XDP_PASS;
		fib.family = 10;
		fib.l4_protocol = ip6->nexthdr;
		fib.tot_len = bpf_ntohs(ip6->payload_len);
		__builtin_memcpy(fib.ipv6_src, &ip6->saddr, 16);
		__builtin_memcpy(fib.ipv6_dst, &ip6->daddr, 16);
	} else {
		return XDP_PASS;
	}
	fib.ifindex = ctx->ingress_ifindex;
	switch (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		if (ip)
			age(ip);
		if (ip6)
			ip6->hop_limit--;
		__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
		__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
		count(0);
		return bpf_redirect_map(&ports, fib.ifindex, XDP_PASS);
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		count(1);
		return XDP_DROP;
	default:
		count(2);
		return XDP_PASS;
	}
}

SEC("xdp")
int by_trie(struct xdp_md *ctx)
{
	void *end = END(ctx);
	struct ethhdr *eth = BEGIN(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	struct prefix key = { .length = 32 };
	struct hop *hop;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ttl < 2)
		return XDP_PASS;
	key.address = ip->daddr;
	hop = bpf_map_lookup_elem(&routes, &key);
	if (!hop)
		return XDP_PASS;
	age(ip);
	__builtin_memcpy(eth->h_dest, hop->target, ETH_ALEN);
	__builtin_memcpy(eth->h_source, hop->source, ETH_ALEN);
	__sync_fetch_and_add(&hop->packets, 1);
	__sync_fetch_and_add(&hop->bytes, end - (void *)eth);
	return bpf_redirect_map(&ports, hop->port, 0);
}

/* Is there a route at all? Nobody asked. */
SEC("xdp")
int bad_no_route(struct xdp_md *ctx)
{
	void *end = END(ctx);
	struct ethhdr *eth = BEGIN(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	struct prefix key = { .length = 32 };
	struct hop *hop;

	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	key.address = ip->daddr;
	hop = bpf_map_lookup_elem(&routes, &key);
	__builtin_memcpy(eth->h_dest, hop->target, ETH_ALEN);
	return bpf_redirect_map(&ports, hop->port, 0);
}

/* The check covers the Ethernet header, the access lies in the next one. */
SEC("xdp")
int bad_check_of_another_header(struct xdp_md *ctx)
{
	void *end = END(ctx);
	struct ethhdr *eth = BEGIN(ctx);
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	return ip->ttl ? XDP_PASS : XDP_DROP;
}

/* A redirection's flags are a set of bits of which few are defined, but its map must be one of devices or CPUs. */
SEC("xdp")
int bad_redirect_into_an_array(struct xdp_md *ctx)
{
	return bpf_redirect_map(&outcomes, ctx->rx_queue_index, XDP_PASS);
}

/* Devices can be looked at, but not written through. */
SEC("xdp")
int bad_write_of_a_device(struct xdp_md *ctx)
{
	__u32 key = ctx->rx_queue_index;
	__u32 *port = bpf_map_lookup_elem(&ports, &key);

	if (port)
		*port = 0;
	return XDP_PASS;
}

/* The kernel's structure is larger than what is handed over. */
SEC("xdp")
int bad_half_a_structure(struct xdp_md *ctx)
{
	struct bpf_fib_lookup fib = {};

	return bpf_fib_lookup(ctx, &fib, sizeof(fib) + 8, 0) ? XDP_PASS : XDP_TX;
}
