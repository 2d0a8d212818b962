/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Flow accounting at a TC hook: packets, bytes, first and last time and the union of the TCP flags of every 5-tuple.
 *
 * IPv4 and IPv6 share one table: an IPv4 address is stored in the last word of 16 zeroed bytes. A flow is created by
 * the CPU that comes first (BPF_NOEXIST), and all CPUs add to it atomically afterwards, so that no packet is lost
 * if two CPUs see a new flow at the same time.
 *
 * The parsers are subprograms (__noinline): they take packet pointers and a pointer into their caller's
 * stack.
 */
#include "common.h"

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_OK 0

struct flow_key {
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	__u8 version;
	__u8 protocol;
	__u16 unused;
};

struct flow {
	__u64 packets;
	__u64 bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 tcp_flags;
};

enum statistic {
	ACCOUNTED,
	NEW_FLOWS,
	NOT_IP,
	UNPARSED,   /* truncated, malformed, or too many headers */
	TABLE_FULL,
	STATISTICS,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STATISTICS);
	__type(key, __u32);
	__type(value, __u64);
} statistics SEC(".maps");

static __noinline int count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&statistics, &what);

	if (counter)
		++*counter;
	return 0;
}

/* Ports and flags of the header at `cursor`; -1 if it is truncated. Other protocols have neither. */
static __noinline int parse_transport(void *cursor, void *end, struct flow_key *key)
{
	if (key->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = cursor;

		if ((void *)(tcp + 1) > end)
			return -1;
		key->source_port = tcp->source;
		key->destination_port = tcp->dest;
		return ((__u8 *)tcp)[13];
	}
	if (key->protocol == IPPROTO_UDP) {
		struct udphdr *udp = cursor;

		if ((void *)(udp + 1) > end)
			return -1;
		key->source_port = udp->source;
		key->destination_port = udp->dest;
	}
	return 0;
}

static __noinline int parse_ipv4(void *cursor, void *end, struct flow_key *key)
{
	struct iphdr *ip = cursor;
	__u32 header_bytes;

	if ((void *)(ip + 1) > end)
		return -1;
	header_bytes = ip->ihl * 4;
	if (ip->version != 4 || header_bytes < sizeof(*ip))
		return -1;
	key->version = 4;
	key->protocol = ip->protocol;
	key->source[3] = ip->saddr;
	key->destination[3] = ip->daddr;
	if (ip->frag_off & bpf_htons(IP4_OFFSET))
		return 0;
	return parse_transport(cursor + header_bytes, end, key);
}

static __noinline int parse_ipv6(void *cursor, void *end, struct flow_key *key)
{
	struct ipv6hdr *ip = cursor;
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return -1;
	key->version = 6;
	for (int word = 0; word < 4; word++) {
		key->source[word] = ip->saddr.in6_u.u6_addr32[word];
		key->destination[word] = ip->daddr.in6_u.u6_addr32[word];
	}
	next = ip->nexthdr;
	cursor = ip + 1;
	for (int i = 0; i <= MAX_EXT_HEADERS; i++) {
		struct ext_header *ext = cursor;
		struct frag_header *frag = cursor;

		if (next == IPPROTO_FRAGMENT) {
			if ((void *)(frag + 1) > end)
				return -1;
			next = frag->next;
			if (frag->offset & bpf_htons(IP6_OFFSET)) {
				key->protocol = next;
				return 0;
			}
			cursor += sizeof(*frag);
		} else if (next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS) {
			if ((void *)(ext + 1) > end)
				return -1;
			next = ext->next;
			cursor += (ext->length + 1) * 8;
		} else {
			key->protocol = next;
			return parse_transport(cursor, end, key);
		}
	}
	return -1;
}

static __noinline int account(const struct flow_key *key, __u64 bytes, __u64 tcp_flags)
{
	__u64 now = bpf_ktime_get_ns();
	struct flow *flow = bpf_map_lookup_elem(&flows, key);

	if (!flow) {
		struct flow fresh = { .first_ns = now };

		if (bpf_map_update_elem(&flows, key, &fresh, BPF_NOEXIST) == 0)
			count(NEW_FLOWS);
		/* Created by this CPU or, just before, by another one. */
		flow = bpf_map_lookup_elem(&flows, key);
		if (!flow)
			return count(TABLE_FULL);
	}
	__sync_fetch_and_add(&flow->packets, 1);
	__sync_fetch_and_add(&flow->bytes, bytes);
	__sync_fetch_and_or(&flow->tcp_flags, tcp_flags);
	flow->last_ns = now;
	return count(ACCOUNTED);
}

SEC("tc")
int account_flows(struct __sk_buff *skb)
{
	void *cursor = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = cursor;
	struct flow_key key = {};
	__be16 type;
	int flags;

	if ((void *)(eth + 1) > end) {
		count(UNPARSED);
		return TC_ACT_UNSPEC;
	}
	type = eth->h_proto;
	cursor = eth + 1;
	for (int i = 0; i < MAX_VLAN_TAGS && is_vlan(type); i++) {
		struct vlan_tag *tag = cursor;

		if ((void *)(tag + 1) > end) {
			count(UNPARSED);
			return TC_ACT_UNSPEC;
		}
		type = tag->inner_type;
		cursor = tag + 1;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		flags = parse_ipv4(cursor, end, &key);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		flags = parse_ipv6(cursor, end, &key);
	} else {
		count(NOT_IP);
		return TC_ACT_UNSPEC;
	}
	if (flags < 0) {
		count(UNPARSED);
		return TC_ACT_UNSPEC;
	}
	account(&key, skb->len, flags);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
