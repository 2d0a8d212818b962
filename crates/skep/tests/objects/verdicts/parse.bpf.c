/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Headers of varying length: tags, IPv6 extension headers, TCP options, names in DNS.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

struct cursor {
	void *at, *end;
};

struct tag {
	__be16 control, inner;
};

struct extension {
	__u8 next, length;
};

MAP(PERCPU_ARRAY, 256, __u32, __u64) protocols SEC(".maps");
MAP(HASH, 1024, __u64, __u32) names SEC(".maps");

static __always_inline void *take(struct cursor *cursor, __u32 bytes)
{
	void *at = cursor->at;

	if (at + bytes > cursor->end)
		return 0;
	cursor->at = at + bytes;
	return at;
}

static __always_inline int network(struct cursor *cursor)
{
	struct ethhdr *eth = take(cursor, sizeof(*eth));
	__be16 type;

	if (!eth)
		return -1;
	type = eth->h_proto;
	for (int i = 0; i < 4; i++) {
		struct tag *tag;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		tag = take(cursor, sizeof(*tag));
		if (!tag)
			return -1;
		type = tag->inner;
	}
	return bpf_ntohs(type);
}

static __always_inline int transport6(struct cursor *cursor)
{
	struct ipv6hdr *ip = take(cursor, sizeof(*ip));
	int next;

	if (!ip)
		return -1;
	next = ip->nexthdr;
	for (int i = 0; i < 8; i++) {
		struct extension *extension;

		switch (next) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			extension = take(cursor, sizeof(*extension));
			if (!extension || !take(cursor, 6 + extension->length * 8))
				return -1;
			next = extension->next;
			break;
		case IPPROTO_FRAGMENT:
			extension = take(cursor, 8);
			if (!extension)
				return -1;
			next = extension->next;
			break;
		default:
			return next;
		}
	}
	return -1;
}

SEC("xdp")
int extension_headers(struct xdp_md *ctx)
{
	struct cursor cursor = { BEGIN(ctx), END(ctx) };
	__u32 protocol;
	__u64 *n;

	if (network(&cursor) != ETH_P_IPV6)
		return XDP_PASS;
	protocol = transport6(&cursor);
	n = bpf_map_lookup_elem(&protocols, &protocol);
	if (!n)
		return XDP_DROP;
	*n += cursor.end - cursor.at;
	return XDP_PASS;
}

/* Options of TCP as a loop over bytes: where each ends depends on its own length. */
SEC("xdp")
int segment_size(struct xdp_md *ctx)
{
	struct cursor cursor = { BEGIN(ctx), END(ctx) };
	struct tcphdr *tcp;
	struct iphdr *ip;
	__u8 *option, *end = cursor.end;
	__u32 left;

	if (network(&cursor) != ETH_P_IP)
		return XDP_PASS;
	ip = take(&cursor, sizeof(*ip));
	if (!ip || ip->protocol != IPPROTO_TCP || ip->ihl != 5)
		return XDP_PASS;
	tcp = take(&cursor, sizeof(*tcp));
	if (!tcp || tcp->doff < 5)
		return XDP_PASS;
	left = tcp->doff * 4 - sizeof(*tcp);
	option = cursor.at;
	for (int i = 0; i < 10 && left > 0; i++) {
		__u8 kind, size;

		if (option + 1 > end)
			return XDP_DROP;
		kind = option[0];
		if (kind == 0)
			break;
		if (kind == 1) {
			option++;
			left--;
			continue;
		}
		if (option + 4 > end)
			return XDP_DROP;
		size = option[1];
		if (size < 2 || size > left)
			return XDP_DROP;
		if (kind == 2 && size == 4) {
			__be16 *mss = (void *)(option + 2);

			if (bpf_ntohs(*mss) > 1400)
				*mss = bpf_htons(1400);
			return XDP_TX;
		}
		option += size;
		left -= size;
	}
	return XDP_PASS;
}

/* The labels of a name, hashed; a name has up to 255 bytes, but this looks at no more than 128. */
SEC("xdp")
int name_of_a_query(struct xdp_md *ctx)
{
	struct cursor cursor = { BEGIN(ctx), END(ctx) };
	struct udphdr *udp;
	struct iphdr *ip;
	__u64 hash = 0xcbf29ce484222325;
	__u32 *verdict;

	if (network(&cursor) != ETH_P_IP)
		return XDP_PASS;
	ip = take(&cursor, sizeof(*ip));
	if (!ip || ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	udp = take(&cursor, sizeof(*udp));
	if (!udp || udp->dest != bpf_htons(53) || !take(&cursor, 12))
		return XDP_PASS;
	for (int i = 0; i < 128; i++) {
		__u8 *letter = take(&cursor, 1);

		if (!letter)
			return XDP_DROP;
		if (!*letter)
			break;
		hash = (hash ^ *letter) * 0x100000001b3;
	}
	verdict = bpf_map_lookup_elem(&names, &hash);
	return verdict && *verdict ? XDP_DROP : XDP_PASS;
}

/* The same in a callback, a step for each byte, through a copy. */
struct reading {
	struct xdp_md *ctx;
	__u64 hash;
	__u32 offset;
	int done;
};

static long letter(__u32 index, struct reading *reading)
{
	__u8 byte;

	if (bpf_xdp_load_bytes(reading->ctx, reading->offset + index, &byte, 1)) {
		reading->done = -1;
		return 1;
	}
	if (!byte) {
		reading->done = 1;
		return 1;
	}
	reading->hash = (reading->hash ^ byte) * 0x100000001b3;
	return 0;
}

SEC("xdp.frags")
int name_by_callback(struct xdp_md *ctx)
{
	struct reading reading = { .ctx = ctx, .offset = 54 };
	__u32 *verdict;

	bpf_loop(255, letter, &reading, 0);
	if (reading.done < 0)
		return XDP_DROP;
	verdict = bpf_map_lookup_elem(&names, &reading.hash);
	return verdict && *verdict ? XDP_DROP : XDP_PASS;
}

/* The length of the header is a field of the packet; what it leads to is not checked. */
SEC("xdp")
int bad_length_of_the_packet(struct xdp_md *ctx)
{
	struct cursor cursor = { BEGIN(ctx), END(ctx) };
	struct ethhdr *eth = take(&cursor, sizeof(*eth));
	struct iphdr *ip = take(&cursor, sizeof(*ip));
	struct udphdr *udp;

	if (!eth || !ip)
		return XDP_PASS;
	udp = (void *)ip + ip->ihl * 4;
	return udp->dest == bpf_htons(53) ? XDP_DROP : XDP_PASS;
}

/* Checked for one byte, read for two. */
SEC("xdp")
int bad_one_byte_more(struct xdp_md *ctx)
{
	__u8 *at = BEGIN(ctx), *end = END(ctx);

	for (int i = 0; i < 16; i++) {
		if (at + 1 > end)
			return XDP_DROP;
		if (*(volatile __u8 *)(at + 1) == 0)
			break;
		at++;
	}
	return XDP_PASS;
}

/* An offset that may be anything in 32 bits proves nothing by being compared. */
SEC("xdp")
int bad_offset_that_wraps(struct xdp_md *ctx)
{
	void *begin = BEGIN(ctx), *end = END(ctx);
	__u64 offset = (__u64)bpf_get_prandom_u32() << 16;
	__u8 *at = begin + offset;

	if (at + 1 > (__u8 *)end)
		return XDP_DROP;
	return *at & XDP_PASS;
}

/* Nothing in this loop says that it ends. */
SEC("xdp")
int bad_loop_without_end(struct xdp_md *ctx)
{
	volatile __u32 *state = (volatile __u32[1]){ ctx->rx_queue_index };

	while (*state != 1)
		*state = *state & 1 ? *state * 3 + 1 : *state >> 1;
	return XDP_PASS;
}

/* Data in fragments may only be copied, and a packet's bytes are no place to copy a packet to. */
SEC("xdp.frags")
int bad_size_of_a_copy(struct xdp_md *ctx)
{
	__u8 copy[64];
	__u32 size = ctx->rx_queue_index;

	if (bpf_xdp_load_bytes(ctx, 0, copy, size))
		return XDP_DROP;
	return copy[3] & XDP_PASS;
}
