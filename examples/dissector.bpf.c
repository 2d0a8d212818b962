/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A flow dissector at a TC hook: which conversation a packet belongs to, through VLAN tags, MPLS labels and tunnels.
 *
 * Each protocol has a parser. A parser reads one header, records its content, advances past it and makes a tail call
 * to the parser of the next header, so headers may follow each other in any order:
 *
 *   dissect (Ethernet) --> vlan, mpls --> ipv4, ipv6 --> options, fragment, gre --> transport --> the table of flows
 *                          ^    tunnels lead back        |
 *                          +-----------------------------+
 *
 * Parsers pass their results in the scratch words of the socket buffer. The last one reads the innermost
 * addresses and the ports. A packet with more than 33 headers is not parsed: that is the maximum number of tail calls.
 *
 * Compiled with -DTAIL_CALLS=0 (dissector_calls.bpf.c), the parsers are instead functions that return the next parser,
 * and a loop calls them.
 */
#include "common.h"

#ifndef TAIL_CALLS
#define TAIL_CALLS 1
#endif

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_OK 0

#define DISSECTED TC_ACT_OK
#define NOT_DISSECTED TC_ACT_UNSPEC

/* Headers beyond this offset are not parsed. */
#define MAX_OFFSET 1024

/* A MAC header; unlike struct ethhdr it is aligned to two bytes. */
struct mac_header {
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__be16 type;
};

/* A label stack entry (RFC 3032): label, traffic class, bottom of stack, time to live. */
struct mpls_entry {
	__be32 word;
};

#define MPLS_BOTTOM 0x100

/* The common start of GRE headers (RFC 2784, 2890), and the flags of the words of four bytes that follow. */
struct gre_header {
	__be16 flags;
	__be16 protocol;
};

#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQUENCE 0x1000

/* The common start of TCP, UDP and SCTP headers. */
struct ports {
	__be16 source;
	__be16 destination;
};

/* A flow: IPv4 addresses are in the last word of 16 zeroed bytes. */
struct flow_key {
	__be32 source[4];
	__be32 destination[4];
	struct ports ports;
	__be16 network; /* the EtherType of the addresses */
	__u8 protocol;
	__u8 unused;
};

/* Further properties of its last packet. */
struct flow {
	__u16 nhoff; /* where its innermost network header is */
	__u16 thoff; /* where its transport header is */
	__u32 flags;
};

#define FRAGMENT 1
#define FIRST_FRAGMENT 2
#define ENCAPSULATED 4

/* Results of parsers, by their word in cb[]. */
enum scratch {
	OFFSET, /* of the next header */
	NHOFF,
	FLAGS,
	VLAN_TAGS,
	PROTOCOL,
};

enum parser {
	ETHERNET,
	VLAN,
	MPLS,
	IPV4,
	IPV6,
	OPTIONS,
	IPV6_FRAGMENT,
	GRE,
	TRANSPORT,
	PARSERS,
};

/* Whether flows are stored; if not, `found` has the last one. */
const volatile __u32 store = 1;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* The current flow. */
struct found {
	struct flow_key key;
	struct flow flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} found SEC(".maps");

static __always_inline struct found *find(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&found, &zero);
}

#if TAIL_CALLS

int parse_ethernet(struct __sk_buff *skb);
int parse_vlan(struct __sk_buff *skb);
int parse_mpls(struct __sk_buff *skb);
int parse_ipv4(struct __sk_buff *skb);
int parse_ipv6(struct __sk_buff *skb);
int parse_options(struct __sk_buff *skb);
int parse_fragment(struct __sk_buff *skb);
int parse_gre(struct __sk_buff *skb);
int parse_transport(struct __sk_buff *skb);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PARSERS);
	__uint(key_size, sizeof(__u32));
	__array(values, int(struct __sk_buff *));
} parsers SEC(".maps") = {
	.values = {
		[ETHERNET] = &parse_ethernet,
		[VLAN] = &parse_vlan,
		[MPLS] = &parse_mpls,
		[IPV4] = &parse_ipv4,
		[IPV6] = &parse_ipv6,
		[OPTIONS] = &parse_options,
		[IPV6_FRAGMENT] = &parse_fragment,
		[GRE] = &parse_gre,
		[TRANSPORT] = &parse_transport,
	},
};

#define PARSER(name)								\
	SEC("tc")								\
	int name(struct __sk_buff *skb)

/*
 * Returns only if no tail call is left, or the slot is empty. The empty instruction keeps the call sites apart: without
 * it, the compiler merges several calls into one with a variable slot.
 */
#define GO_ON(skb, parser)							\
	do {									\
		bpf_tail_call(skb, &parsers, parser);				\
		asm volatile("" : : "i"(parser));				\
		return NOT_DISSECTED;						\
	} while (0)

#else

/* Verdicts are small numbers, and these are not. */
#define NEXT 0x100

#define PARSER(name) static __noinline int name(struct __sk_buff *skb)
#define GO_ON(skb, parser)							\
	do {									\
		(void)(skb);							\
		return NEXT + (parser);						\
	} while (0)

#endif

/* Points to the header at one of the offsets in cb[], if that many bytes of it are in the packet. */
#define TAKE_HEADER(skb, offset, header, bytes)					\
	do {									\
		if (skb->cb[offset] > MAX_OFFSET)				\
			return NOT_DISSECTED;					\
		header = (void *)(long)skb->data + skb->cb[offset];		\
		if ((void *)header + (bytes) > (void *)(long)skb->data_end)	\
			return NOT_DISSECTED;					\
	} while (0)

static __always_inline int by_ethertype(struct __sk_buff *skb, __be16 type)
{
	switch (type) {
	case bpf_htons(ETH_P_IP):
		GO_ON(skb, IPV4);
	case bpf_htons(ETH_P_IPV6):
		GO_ON(skb, IPV6);
	case bpf_htons(ETH_P_8021Q):
	case bpf_htons(ETH_P_8021AD):
		GO_ON(skb, VLAN);
	case bpf_htons(ETH_P_MPLS_UC):
	case bpf_htons(ETH_P_MPLS_MC):
		GO_ON(skb, MPLS);
	case bpf_htons(ETH_P_TEB):
		GO_ON(skb, ETHERNET);
	}
	return NOT_DISSECTED;
}

/* Tunnels lead back to the network layer, and everything else ends with the transport layer. */
static __always_inline int by_protocol(struct __sk_buff *skb, __u8 protocol)
{
	switch (protocol) {
	case IPPROTO_IPIP:
		skb->cb[FLAGS] |= ENCAPSULATED;
		GO_ON(skb, IPV4);
	case IPPROTO_IPV6:
		skb->cb[FLAGS] |= ENCAPSULATED;
		GO_ON(skb, IPV6);
	case IPPROTO_GRE:
		GO_ON(skb, GRE);
	}
	skb->cb[PROTOCOL] = protocol;
	GO_ON(skb, TRANSPORT);
}

static __always_inline int by_next_header(struct __sk_buff *skb, __u8 next)
{
	switch (next) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		GO_ON(skb, OPTIONS);
	case IPPROTO_FRAGMENT:
		GO_ON(skb, IPV6_FRAGMENT);
	}
	return by_protocol(skb, next);
}

/* Later fragments hold neither ports nor another header. */
static __always_inline int later_fragment(struct __sk_buff *skb, __u8 protocol)
{
	skb->cb[FLAGS] = (skb->cb[FLAGS] | FRAGMENT) & ~FIRST_FRAGMENT;
	skb->cb[PROTOCOL] = protocol;
	GO_ON(skb, TRANSPORT);
}

/* ---- the parsers ---------------------------------------------------------------------------------------------- */

static __always_inline int ethernet(struct __sk_buff *skb)
{
	struct mac_header *mac;

	TAKE_HEADER(skb, OFFSET, mac, sizeof(*mac));
	skb->cb[OFFSET] += sizeof(*mac);
	skb->cb[VLAN_TAGS] = 0;
	return by_ethertype(skb, mac->type);
}

PARSER(parse_ethernet)
{
	return ethernet(skb);
}

PARSER(parse_vlan)
{
	struct vlan_tag *tag;

	TAKE_HEADER(skb, OFFSET, tag, sizeof(*tag));
	if (skb->cb[VLAN_TAGS] >= MAX_VLAN_TAGS)
		return NOT_DISSECTED;
	skb->cb[VLAN_TAGS]++;
	skb->cb[OFFSET] += sizeof(*tag);
	return by_ethertype(skb, tag->inner_type);
}

/* Labels do not name their payload: it is an IP packet if its first bits look like one (RFC 4928). */
PARSER(parse_mpls)
{
	struct mpls_entry *entry;

	TAKE_HEADER(skb, OFFSET, entry, sizeof(*entry) + 1);
	skb->cb[OFFSET] += sizeof(*entry);
	if (!(entry->word & bpf_htonl(MPLS_BOTTOM)))
		GO_ON(skb, MPLS);
	switch (*(__u8 *)(entry + 1) >> 4) {
	case 4:
		GO_ON(skb, IPV4);
	case 6:
		GO_ON(skb, IPV6);
	}
	return NOT_DISSECTED;
}

PARSER(parse_ipv4)
{
	struct iphdr *ip;

	TAKE_HEADER(skb, OFFSET, ip, sizeof(*ip));
	if (ip->version != 4 || ip->ihl < sizeof(*ip) / 4)
		return NOT_DISSECTED;
	skb->cb[NHOFF] = skb->cb[OFFSET];
	skb->cb[OFFSET] += ip->ihl * 4;
	if (ip->frag_off & bpf_htons(IP4_OFFSET))
		return later_fragment(skb, ip->protocol);
	if (ip->frag_off & bpf_htons(IP4_MORE))
		skb->cb[FLAGS] |= FRAGMENT | FIRST_FRAGMENT;
	return by_protocol(skb, ip->protocol);
}

PARSER(parse_ipv6)
{
	struct ipv6hdr *ip;

	TAKE_HEADER(skb, OFFSET, ip, sizeof(*ip));
	if (ip->version != 6)
		return NOT_DISSECTED;
	skb->cb[NHOFF] = skb->cb[OFFSET];
	skb->cb[OFFSET] += sizeof(*ip);
	return by_next_header(skb, ip->nexthdr);
}

/* Hop-by-hop options, destination options and routing headers have the same layout (RFC 8200, 4.3 to 4.6). */
PARSER(parse_options)
{
	struct ext_header *ext;

	TAKE_HEADER(skb, OFFSET, ext, sizeof(*ext));
	skb->cb[OFFSET] += (ext->length + 1) * 8;
	return by_next_header(skb, ext->next);
}

/* A header with offset 0 and without more fragments is that of a whole packet (RFC 6946). */
PARSER(parse_fragment)
{
	struct frag_header *frag;

	TAKE_HEADER(skb, OFFSET, frag, sizeof(*frag));
	skb->cb[OFFSET] += sizeof(*frag);
	if (frag->offset & bpf_htons(IP6_OFFSET))
		return later_fragment(skb, frag->next);
	if (frag->offset & bpf_htons(IP6_MORE))
		skb->cb[FLAGS] |= FRAGMENT | FIRST_FRAGMENT;
	return by_next_header(skb, frag->next);
}

PARSER(parse_gre)
{
	struct gre_header *gre;
	__u32 bytes = sizeof(*gre);

	TAKE_HEADER(skb, OFFSET, gre, sizeof(*gre));
	/* The other bits are versions and source routing, which is unused. */
	if (gre->flags & ~bpf_htons(GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE))
		return NOT_DISSECTED;
	if (gre->flags & bpf_htons(GRE_CHECKSUM))
		bytes += 4;
	if (gre->flags & bpf_htons(GRE_KEY))
		bytes += 4;
	if (gre->flags & bpf_htons(GRE_SEQUENCE))
		bytes += 4;
	skb->cb[OFFSET] += bytes;
	skb->cb[FLAGS] |= ENCAPSULATED;
	return by_ethertype(skb, gre->protocol);
}

/* The end of every packet that is dissected: addresses, ports, and the table. */
PARSER(parse_transport)
{
	struct found *found = find();
	struct iphdr *ip4;
	struct ipv6hdr *ip6;
	struct ports *ports;

	if (!found)
		return NOT_DISSECTED;
	TAKE_HEADER(skb, NHOFF, ip4, sizeof(*ip4));
	if (ip4->version == 4) {
		for (int word = 0; word < 3; word++)
			found->key.source[word] = found->key.destination[word] = 0;
		found->key.source[3] = ip4->saddr;
		found->key.destination[3] = ip4->daddr;
		found->key.network = bpf_htons(ETH_P_IP);
	} else {
		TAKE_HEADER(skb, NHOFF, ip6, sizeof(*ip6));
		for (int word = 0; word < 4; word++) {
			found->key.source[word] = ip6->saddr.in6_u.u6_addr32[word];
			found->key.destination[word] = ip6->daddr.in6_u.u6_addr32[word];
		}
		found->key.network = bpf_htons(ETH_P_IPV6);
	}
	found->key.ports.source = found->key.ports.destination = 0;
	switch (skb->cb[PROTOCOL]) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		if ((skb->cb[FLAGS] & (FRAGMENT | FIRST_FRAGMENT)) == FRAGMENT)
			break;
		TAKE_HEADER(skb, OFFSET, ports, sizeof(*ports));
		found->key.ports = *ports;
	}
	found->key.protocol = skb->cb[PROTOCOL];
	found->key.unused = 0;
	found->flow.nhoff = skb->cb[NHOFF];
	found->flow.thoff = skb->cb[OFFSET];
	found->flow.flags = skb->cb[FLAGS];
	if (store && bpf_map_update_elem(&flows, &found->key, &found->flow, BPF_ANY))
		return NOT_DISSECTED;
	return DISSECTED;
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

static __always_inline int begin(struct __sk_buff *skb)
{
	skb->cb[OFFSET] = 0;
	skb->cb[FLAGS] = 0;
	return ethernet(skb);
}

#if TAIL_CALLS

SEC("tc")
int dissect(struct __sk_buff *skb)
{
	return begin(skb);
}

#else

/* The maximum number of tail calls. */
#define MAX_JUMPS 33

SEC("tc")
int dissect_by_calls(struct __sk_buff *skb)
{
	int next = begin(skb);

	for (int jumps = 0; jumps < MAX_JUMPS; jumps++) {
		switch (next - NEXT) {
		case ETHERNET:
			next = parse_ethernet(skb);
			break;
		case VLAN:
			next = parse_vlan(skb);
			break;
		case MPLS:
			next = parse_mpls(skb);
			break;
		case IPV4:
			next = parse_ipv4(skb);
			break;
		case IPV6:
			next = parse_ipv6(skb);
			break;
		case OPTIONS:
			next = parse_options(skb);
			break;
		case IPV6_FRAGMENT:
			next = parse_fragment(skb);
			break;
		case GRE:
			next = parse_gre(skb);
			break;
		case TRANSPORT:
			return parse_transport(skb);
		default:
			return next;
		}
	}
	return NOT_DISSECTED;
}

#endif

char LICENSE[] SEC("license") = "Dual MIT/GPL";
