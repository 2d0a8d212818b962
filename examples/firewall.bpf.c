/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A stateless XDP firewall. A frame is dropped when
 *
 *   - it is truncated or inconsistent (lengths, versions, flags that no honest stack sends),
 *   - its IPv4 or IPv6 source or destination is in a blocked prefix,
 *   - its TCP or UDP destination port is blocked,
 *   - it is a fragment without ports and the configuration forbids these,
 *
 * and passed otherwise. Up to two VLAN tags and four IPv6 extension headers are looked through.
 *
 * Each list has two sources: a short one in .rodata, which the host may rewrite before the program is loaded, and a
 * map, which the host may change at any time. `verdicts` counts packets and bytes for each reason; `offenders`
 * counts frames that were dropped for their address or port, by source.
 */
#include "common.h"

enum reason {
	PASS_IPV4,
	PASS_IPV6,
	PASS_OTHER,       /* not IP: ARP, LLDP, ... */
	PASS_FRAGMENT,    /* a later fragment, of which only the addresses were checked */
	DROP_TRUNCATED,   /* headers or payload end before they said they would */
	DROP_MALFORMED,   /* header fields contradict each other or the RFCs */
	DROP_MARTIAN,     /* a source address that cannot be one */
	DROP_ADDRESS4,
	DROP_ADDRESS6,
	DROP_PORT,
	DROP_FRAGMENT,    /* a first fragment too small to hold its ports, or any, when configured */
	DROP_EXTENSIONS,  /* too many extension headers, or more than two VLAN tags */
	REASONS,
};

/* ---- configuration: fixed when the program is loaded -------------------------------------------------------- */

struct prefix4 {
	__be32 network;
	__be32 mask;
};

struct prefix6 {
	__be32 network[4];
	__be32 mask[4];
};

struct service {
	__u8 protocol;
	__u8 unused;
	__be16 port;
};

#define IP4(a, b, c, d) bpf_htonl((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))

const volatile struct prefix4 static_prefixes4[4] = {
	{ IP4(192, 0, 2, 0), IP4(255, 255, 255, 0) },
	{ IP4(198, 51, 100, 128), IP4(255, 255, 255, 128) },
	{ IP4(10, 66, 0, 0), IP4(255, 255, 0, 0) },
	{ IP4(198, 19, 6, 6), IP4(255, 255, 255, 255) },
};

const volatile struct prefix6 static_prefixes6[2] = {
	/* 2001:db8:bad::/48 */
	{ { bpf_htonl(0x20010db8), bpf_htonl(0x0bad0000), 0, 0 }, { bpf_htonl(0xffffffff), bpf_htonl(0xffff0000), 0, 0 } },
	/* 2001:db8:0:66::/64 */
	{ { bpf_htonl(0x20010db8), bpf_htonl(0x00000066), 0, 0 }, { bpf_htonl(0xffffffff), bpf_htonl(0xffffffff), 0, 0 } },
};

const volatile struct service static_services[6] = {
	{ IPPROTO_TCP, 0, bpf_htons(23) },    { IPPROTO_TCP, 0, bpf_htons(445) },  { IPPROTO_TCP, 0, bpf_htons(3389) },
	{ IPPROTO_UDP, 0, bpf_htons(1900) }, { IPPROTO_UDP, 0, bpf_htons(11211) }, { IPPROTO_UDP, 0, bpf_htons(19) },
};

/* ---- configuration and state that the host may change while the program runs --------------------------------- */

/* Drop every fragment, also those whose ports would be allowed. */
volatile __u32 drop_fragments = 0;
/* Count sources of dropped frames in `offenders`. */
volatile __u32 track_offenders = 1;

/* All frames and bytes seen, with any verdict. */
__u64 frames_seen;
__u64 bytes_seen;

struct lpm_key4 {
	__u32 prefix_bits;
	__be32 address;
};

struct lpm_key6 {
	__u32 prefix_bits;
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct lpm_key4);
	__type(value, __u32);
} blocked4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct lpm_key6);
	__type(value, __u32);
} blocked6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct service);
	__type(value, __u32);
} blocked_services SEC(".maps");

struct tally {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, struct tally);
} verdicts SEC(".maps");

/* An IPv6 address, or an IPv4 one in ::ffff:0:0/96. */
struct source {
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct source);
	__type(value, __u64);
} offenders SEC(".maps");

/* ---- the lists ------------------------------------------------------------------------------------------------ */

static __always_inline int blocked_address4(__be32 address)
{
	struct lpm_key4 key = { .prefix_bits = 32, .address = address };

	for (int i = 0; i < 4; i++)
		if ((address & static_prefixes4[i].mask) == static_prefixes4[i].network)
			return 1;
	return bpf_map_lookup_elem(&blocked4, &key) != NULL;
}

static __always_inline int blocked_address6(const __be32 *address)
{
	struct lpm_key6 key = { .prefix_bits = 128 };

	for (int i = 0; i < 2; i++) {
		__u32 differs = 0;

		for (int word = 0; word < 4; word++)
			differs |= (address[word] & static_prefixes6[i].mask[word]) ^ static_prefixes6[i].network[word];
		if (!differs)
			return 1;
	}
	for (int word = 0; word < 4; word++)
		key.address[word] = address[word];
	return bpf_map_lookup_elem(&blocked6, &key) != NULL;
}

static __always_inline int blocked_service(__u8 protocol, __be16 port)
{
	struct service key = { .protocol = protocol, .port = port };

	for (int i = 0; i < 6; i++)
		if (protocol == static_services[i].protocol && port == static_services[i].port)
			return 1;
	return bpf_map_lookup_elem(&blocked_services, &key) != NULL;
}

/* ---- the layers ----------------------------------------------------------------------------------------------- */

/* The ports after an IP header that ends at `cursor`; `pass` is the verdict if they are not blocked. */
static __always_inline enum reason inspect_transport(void *cursor, void *end, __u8 protocol, enum reason pass)
{
	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = cursor;

		if ((void *)(tcp + 1) > end)
			return DROP_TRUNCATED;
		if (tcp->doff < 5 || (tcp->syn && (tcp->fin || tcp->rst)))
			return DROP_MALFORMED;
		if (blocked_service(protocol, tcp->dest))
			return DROP_PORT;
	} else if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = cursor;

		if ((void *)(udp + 1) > end)
			return DROP_TRUNCATED;
		if (bpf_ntohs(udp->len) < sizeof(*udp))
			return DROP_MALFORMED;
		if (blocked_service(protocol, udp->dest))
			return DROP_PORT;
	}
	return pass;
}

static __always_inline enum reason inspect_ipv4(void *cursor, void *end, struct source *source)
{
	struct iphdr *ip = cursor;
	__u32 header_bytes, total_bytes, fragment;

	if ((void *)(ip + 1) > end)
		return DROP_TRUNCATED;
	header_bytes = ip->ihl * 4;
	total_bytes = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header_bytes < sizeof(*ip) || total_bytes < header_bytes)
		return DROP_MALFORMED;
	if (cursor + total_bytes > end)
		return DROP_TRUNCATED;

	source->address[2] = bpf_htonl(0xffff);
	source->address[3] = ip->saddr;
	/* Class D and E, loopback and "this network" never send; nor does a host send to itself over a wire. */
	if ((ip->saddr & bpf_htonl(0xe0000000)) == bpf_htonl(0xe0000000) ||
	    (ip->saddr & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) || ip->saddr == ip->daddr)
		return DROP_MARTIAN;
	if (blocked_address4(ip->saddr) || blocked_address4(ip->daddr))
		return DROP_ADDRESS4;

	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & (IP4_MORE | IP4_OFFSET)) {
		if (drop_fragments)
			return DROP_FRAGMENT;
		if (fragment & IP4_OFFSET)
			return PASS_FRAGMENT;
		/* The ports must be in the first fragment; otherwise a filter can be bypassed (RFC 1858). */
		if (total_bytes < header_bytes + sizeof(struct tcphdr))
			return DROP_FRAGMENT;
	}
	return inspect_transport(cursor + header_bytes, end, ip->protocol, PASS_IPV4);
}

static __always_inline enum reason inspect_ipv6(void *cursor, void *end, struct source *source)
{
	struct ipv6hdr *ip = cursor;
	__u8 next;

	if ((void *)(ip + 1) > end)
		return DROP_TRUNCATED;
	if (ip->version != 6)
		return DROP_MALFORMED;
	cursor = ip + 1;
	if (cursor + bpf_ntohs(ip->payload_len) > end)
		return DROP_TRUNCATED;

	for (int word = 0; word < 4; word++)
		source->address[word] = ip->saddr.in6_u.u6_addr32[word];
	if (ip->saddr.in6_u.u6_addr8[0] == 0xff)
		return DROP_MARTIAN;
	if (blocked_address6(ip->saddr.in6_u.u6_addr32) || blocked_address6(ip->daddr.in6_u.u6_addr32))
		return DROP_ADDRESS6;

	next = ip->nexthdr;
	for (int i = 0; i <= MAX_EXT_HEADERS; i++) {
		struct ext_header *ext = cursor;
		__u32 bytes;

		switch (next) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
		case IPPROTO_AH:
			if ((void *)(ext + 1) > end)
				return DROP_TRUNCATED;
			bytes = next == IPPROTO_AH ? (ext->length + 2) * 4 : (ext->length + 1) * 8;
			break;
		case IPPROTO_FRAGMENT: {
			struct frag_header *frag = cursor;

			if ((void *)(frag + 1) > end)
				return DROP_TRUNCATED;
			if (drop_fragments)
				return DROP_FRAGMENT;
			if (frag->offset & bpf_htons(IP6_OFFSET))
				return PASS_FRAGMENT;
			bytes = sizeof(*frag);
			break;
		}
		case IPPROTO_NONE:
			return PASS_IPV6;
		default:
			return inspect_transport(cursor, end, next, PASS_IPV6);
		}
		next = ext->next;
		cursor += bytes;
	}
	return DROP_EXTENSIONS;
}

static __always_inline enum reason inspect(void *cursor, void *end, struct source *source)
{
	struct ethhdr *eth = cursor;
	__be16 type;

	if ((void *)(eth + 1) > end)
		return DROP_TRUNCATED;
	type = eth->h_proto;
	cursor = eth + 1;
	for (int i = 0; i < MAX_VLAN_TAGS && is_vlan(type); i++) {
		struct vlan_tag *tag = cursor;

		if ((void *)(tag + 1) > end)
			return DROP_TRUNCATED;
		type = tag->inner_type;
		cursor = tag + 1;
	}
	if (type == bpf_htons(ETH_P_IP))
		return inspect_ipv4(cursor, end, source);
	if (type == bpf_htons(ETH_P_IPV6))
		return inspect_ipv6(cursor, end, source);
	return is_vlan(type) ? DROP_EXTENSIONS : PASS_OTHER;
}

/* ---- the books ------------------------------------------------------------------------------------------------ */

static __always_inline void blame(const struct source *source)
{
	__u64 one = 1, *count = bpf_map_lookup_elem(&offenders, source);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&offenders, source, &one, BPF_ANY);
}

SEC("xdp")
int firewall(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct source source = {};
	__u64 bytes = end - data;
	struct tally *tally;
	__u32 reason;

	__sync_fetch_and_add(&frames_seen, 1);
	__sync_fetch_and_add(&bytes_seen, bytes);

	reason = inspect(data, end, &source);

	tally = bpf_map_lookup_elem(&verdicts, &reason);
	if (!tally)
		return XDP_ABORTED;
	tally->packets++;
	tally->bytes += bytes;
	if (reason <= PASS_FRAGMENT)
		return XDP_PASS;
	if (track_offenders && (reason == DROP_ADDRESS4 || reason == DROP_ADDRESS6 || reason == DROP_PORT))
		blame(&source);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
