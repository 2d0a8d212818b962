/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A load balancer on XDP: services, a ring of back ends for each, flows that stay with theirs, IP in IP.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define RING 251

struct service {
	__be32 address;
	__be16 port;
	__u8 protocol, unused;
};

struct flow {
	__be32 source, target;
	__be16 from, to;
	__u32 protocol;
};

struct backend {
	__be32 address;
	__u8 hardware[ETH_ALEN];
	__u16 weight;
	__u64 packets;
};

struct ring {
	__u32 slots[RING];
	__u32 used;
};

MAP(HASH, 512, struct service, __u32) services SEC(".maps");
MAP(ARRAY, 16, __u32, struct ring) rings SEC(".maps");
MAP(ARRAY, 256, __u32, struct backend) backends SEC(".maps");
MAP(LRU_HASH, 65536, struct flow, __u32) flows SEC(".maps");

const volatile __be32 own_address = 0;
volatile __u64 dropped;

static __noinline __u32 hash(const struct flow *flow)
{
	__u32 h = 0x811c9dc5;

	h = (h ^ flow->source) * 0x01000193;
	h = (h ^ flow->target) * 0x01000193;
	h = (h ^ flow->from) * 0x01000193;
	h = (h ^ flow->to) * 0x01000193;
	return (h ^ flow->protocol) * 0x01000193;
}

static __always_inline __u16 folded(__u64 sum)
{
	for (int i = 0; i < 4; i++)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __noinline int ports_of(void *l4, void *end, __u8 protocol, struct flow *flow)
{
	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			return -1;
		flow->from = tcp->source;
		flow->to = tcp->dest;
		return tcp->syn;
	}
	if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end)
			return -1;
		flow->from = udp->source;
		flow->to = udp->dest;
		return 0;
	}
	return -1;
}

static __always_inline struct backend *chosen(struct flow *flow, __u32 ring_number, int fresh)
{
	__u32 *known = fresh ? 0 : bpf_map_lookup_elem(&flows, flow);
	struct ring *ring;
	__u32 slot, id;

	if (known)
		return bpf_map_lookup_elem(&backends, known);
	ring = bpf_map_lookup_elem(&rings, &ring_number);
	if (!ring)
		return 0;
	slot = hash(flow);
	if (ring->used > RING || ring->used == 0)
		return 0;
	slot %= ring->used;
	/* The compiler knows that it is, but Linux forgets. */
	barrier_var(slot);
	if (slot >= RING)
		return 0;
	id = ring->slots[slot];
	bpf_map_update_elem(&flows, flow, &id, BPF_ANY);
	return bpf_map_lookup_elem(&backends, &id);
}

static __always_inline int wrapped(struct xdp_md *ctx, struct backend *to, __u16 payload)
{
	struct ethhdr *eth, *old;
	struct iphdr *outer;
	void *end;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*outer)))
		return XDP_DROP;
	eth = BEGIN(ctx);
	end = END(ctx);
	outer = (void *)(eth + 1);
	old = (void *)eth + sizeof(*outer);
	if ((void *)(outer + 1) > end || (void *)(old + 1) > end)
		return XDP_DROP;
	__builtin_memmove(eth->h_source, old->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, to->hardware, ETH_ALEN);
	eth->h_proto = bpf_htons(ETH_P_IP);
	__builtin_memset(outer, 0, sizeof(*outer));
	outer->version = 4;
	outer->ihl = 5;
	outer->ttl = 64;
	outer->protocol = IPPROTO_IPIP;
	outer->tot_len = bpf_htons(payload + sizeof(*outer));
	outer->saddr = own_address;
	outer->daddr = to->address;
	outer->check = folded(bpf_csum_diff(0, 0, (__be32 *)outer, sizeof(*outer), 0));
	__sync_fetch_and_add(&to->packets, 1);
	return XDP_TX;
}

SEC("xdp")
int balance(struct xdp_md *ctx)
{
	void *end = END(ctx);
	struct ethhdr *eth = BEGIN(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	struct service service = {};
	struct flow flow = {};
	struct backend *to;
	__u32 *ring;
	int fresh;

	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl < 5)
		return XDP_PASS;
	fresh = ports_of((void *)ip + ip->ihl * 4, end, ip->protocol, &flow);
	if (fresh < 0)
		return XDP_PASS;
	service.address = flow.target = ip->daddr;
	service.port = flow.to;
	service.protocol = ip->protocol;
	flow.source = ip->saddr;
	flow.protocol = ip->protocol;
	ring = bpf_map_lookup_elem(&services, &service);
	if (!ring)
		return XDP_PASS;
	to = chosen(&flow, *ring, fresh);
	if (!to) {
		dropped++;
		return XDP_DROP;
	}
	return wrapped(ctx, to, bpf_ntohs(ip->tot_len));
}

/* Linux forgets what a remainder is below, skep does not. */
SEC("xdp")
int remainder_of_a_constant(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct ring *ring = bpf_map_lookup_elem(&rings, &key);

	if (!ring)
		return XDP_PASS;
	return ring->slots[bpf_get_prandom_u32() % RING] == ctx->rx_queue_index ? XDP_PASS : XDP_DROP;
}

/* After the head moved, the old pointers lead nowhere. */
SEC("xdp")
int bad_pointer_from_before(struct xdp_md *ctx)
{
	void *end = END(ctx);
	struct ethhdr *eth = BEGIN(ctx);

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	if (bpf_xdp_adjust_head(ctx, -20))
		return XDP_DROP;
	eth->h_proto = bpf_htons(ETH_P_IP);
	return XDP_TX;
}

/* The number of slots in use comes out of a map, so it may be anything. */
SEC("xdp")
int bad_remainder_of_anything(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct ring *ring = bpf_map_lookup_elem(&rings, &key);

	if (!ring)
		return XDP_PASS;
	return ring->slots[bpf_get_prandom_u32() % ring->used] & 1 ? XDP_PASS : ctx->rx_queue_index & XDP_TX;
}

/* One more than there are. */
SEC("xdp")
int bad_slot_beyond_the_ring(struct xdp_md *ctx)
{
	__u32 key = 0, slot = ctx->rx_queue_index;
	struct ring *ring = bpf_map_lookup_elem(&rings, &key);

	if (!ring || slot > RING + 1)
		return XDP_PASS;
	return ring->slots[slot] & 1 ? XDP_PASS : XDP_DROP;
}

/* What is constant to the compiler is written by the host alone. */
SEC("xdp")
int bad_write_of_a_constant(struct xdp_md *ctx)
{
	*(volatile __be32 *)&own_address = ctx->rx_queue_index;
	return XDP_PASS;
}

/* The index of a service's back end is used without a look at how many there are. */
SEC("xdp")
int bad_backend_without_a_look_up(struct xdp_md *ctx)
{
	struct service service = { .port = ctx->rx_queue_index };
	__u32 *ring = bpf_map_lookup_elem(&services, &service);
	__u32 local[4] = { 1, 2, 3, 4 };

	if (!ring)
		return XDP_PASS;
	asm volatile("" : : "r"(local) : "memory");
	return local[*ring] & XDP_PASS;
}
