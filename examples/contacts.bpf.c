/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Reports communicating hosts: one record for every new pair of IPv4 addresses and protocol.
 *
 * A bloom filter remembers the pairs; it may take a new pair for a known one, but never a known one for new. The
 * records go to ring buffers, one for each protocol, which are found in a hash table of maps, so that several threads
 * of the host can read them, and the host can add ring buffers for other protocols at run time. A queue keeps the
 * latest pairs; if it is full, the oldest pair is dropped.
 */
#include "common.h"

struct pair {
	__be32 source;
	__be32 destination;
	__u32 protocol;
};

struct contact {
	struct pair pair;
	__u32 length;
	__u64 number;
};

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} tcp SEC(".maps"), udp SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 8);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps") = {
	.values = { [IPPROTO_TCP] = &tcp, [IPPROTO_UDP] = &udp },
};

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 10000);
	__uint(map_extra, 4);
	__type(value, struct pair);
} known SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 32);
	__type(value, struct pair);
} latest SEC(".maps");

__u64 contacts;
__u64 unheard; /* no ring for the protocol, or no room in it */

/* Fills a record; returns whether to report it. */
static __always_inline int fill(struct contact *contact, const struct pair *pair, const struct iphdr *ip)
{
	contact->pair = *pair;
	contact->length = bpf_ntohs(ip->tot_len);
	contact->number = __sync_fetch_and_add(&contacts, 1);
	return pair->source != pair->destination;
}

SEC("xdp")
int contact(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;

	struct pair pair = { ip->saddr, ip->daddr, ip->protocol };

	if (bpf_map_peek_elem(&known, &pair) == 0)
		return XDP_PASS;
	bpf_map_push_elem(&known, &pair, BPF_ANY);
	bpf_map_push_elem(&latest, &pair, BPF_EXIST);

	void *ring = bpf_map_lookup_elem(&rings, &pair.protocol);
	struct contact *contact = ring ? bpf_ringbuf_reserve(ring, sizeof(*contact), 0) : NULL;

	if (!contact) {
		__sync_fetch_and_add(&unheard, 1);
		return XDP_PASS;
	}
	if (fill(contact, &pair, ip))
		bpf_ringbuf_submit(contact, 0);
	else
		bpf_ringbuf_discard(contact, 0);
	return XDP_PASS;
}

/* Removes the oldest of the latest pairs; drops the packet if there is none. */
SEC("xdp")
int forget(struct xdp_md *ctx __attribute__((unused)))
{
	struct pair pair;

	return bpf_map_pop_elem(&latest, &pair) ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
