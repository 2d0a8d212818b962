/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A layer-4 load balancer at the XDP hook. Packets for a virtual address go to one of several backends: the
 * destination address and MAC are rewritten, the checksums are updated incrementally (RFC 1624) and the frame is sent
 * back out. A connection stays with its backend, remembered in `connections`; without an entry (a full table) the
 * hash of the 5-tuple gives the same answer as long as the set of backends stays the same.
 *
 * The balancer answers ICMP echo requests for its IPv4 address itself. Backends are expected to hold the way back,
 * as in any direct-return set-up, or to send it through a translator of their own.
 */
#include "common.h"

#define BACKENDS 4

/* The start of an ICMP echo message (RFC 792); <linux/icmp.h> needs a C library for the target. */
struct echo {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be16 id;
	__be16 sequence;
};

#define ICMP_ECHOREPLY 0
#define ICMP_ECHO 8

struct backend {
	__be32 address4;
	__be32 address6[4];
	__u8 mac[6];
	__u16 enabled;
};

#define IP4(a, b, c, d) bpf_htonl((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define IP6(last) { bpf_htonl(0x20010db8), bpf_htonl(0x00010000), 0, bpf_htonl(last) }

/* The service: 203.0.113.80 and 2001:db8::80, TCP ports 80 and 443, UDP port 53. */
const volatile __be32 virtual4 = IP4(203, 0, 113, 80);
const volatile __be32 virtual6[4] = { bpf_htonl(0x20010db8), 0, 0, bpf_htonl(0x80) };
const volatile __u8 own_mac[6] = { 0x02, 0, 0, 0, 0, 0x50 };

/* The initial backends. An enabled entry of `overrides` replaces the backend of the same index. */
const volatile struct backend static_backends[BACKENDS] = {
	{ IP4(10, 1, 0, 1), IP6(1), { 0x02, 0, 0, 0, 1, 1 }, 1 },
	{ IP4(10, 1, 0, 2), IP6(2), { 0x02, 0, 0, 0, 1, 2 }, 1 },
	{ IP4(10, 1, 0, 3), IP6(3), { 0x02, 0, 0, 0, 1, 3 }, 1 },
	{ IP4(10, 1, 0, 4), IP6(4), { 0x02, 0, 0, 0, 1, 4 }, 1 },
};

struct connection {
	__be32 source[4];
	__be16 source_port;
	__be16 service_port;
	__u32 protocol;
};

struct tally {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BACKENDS);
	__type(key, __u32);
	__type(value, struct backend);
} overrides SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct connection);
	__type(value, __u32);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BACKENDS);
	__type(key, __u32);
	__type(value, struct tally);
} per_backend SEC(".maps");

/* Echo requests answered, and packets for the service that could not be forwarded. */
__u64 echoes_answered;
__u64 refused;

/* ---- checksums ------------------------------------------------------------------------------------------------ */

/* A one's-complement sum of 32 bits folded to 16 and complemented, as in a header. */
static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* `check` after the bytes it covers changed by `change`, a sum as bpf_csum_diff returns it. */
static __always_inline __u16 mend(__u16 check, __u32 change)
{
	__u64 sum = (__u64)(__u16)~check + change;

	return fold((__u32)((sum & 0xffffffff) + (sum >> 32)));
}

/* Updates the checksum of the TCP or UDP header at `cursor`; 0 if the header is truncated. */
static __always_inline int mend_transport(void *cursor, void *end, __u8 protocol, __u32 change)
{
	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = cursor;

		if ((void *)(tcp + 1) > end)
			return 0;
		tcp->check = mend(tcp->check, change);
	} else {
		struct udphdr *udp = cursor;

		if ((void *)(udp + 1) > end)
			return 0;
		/* Zero means that the sender computed none; a computed sum of zero is sent as all ones. */
		if (udp->check) {
			__u16 check = mend(udp->check, change);

			udp->check = check ? check : 0xffff;
		}
	}
	return 1;
}

/* ---- the choice ----------------------------------------------------------------------------------------------- */

static __always_inline __u32 mix(__u32 hash, __u32 word)
{
	hash ^= word;
	hash *= 0x9e3779b1;
	return hash ^ hash >> 15;
}

static __noinline __u32 choose(const struct connection *connection)
{
	__u32 *known = bpf_map_lookup_elem(&connections, connection);
	__u32 hash = 0x811c9dc5, index;

	if (known)
		return *known & (BACKENDS - 1);
	for (int word = 0; word < 4; word++)
		hash = mix(hash, connection->source[word]);
	hash = mix(hash, (__u32)connection->source_port << 16 | connection->service_port);
	hash = mix(hash, connection->protocol);
	index = hash & (BACKENDS - 1);
	bpf_map_update_elem(&connections, connection, &index, BPF_ANY);
	return index;
}

static __always_inline void copy_backend(struct backend *to, const volatile struct backend *from)
{
	to->address4 = from->address4;
	for (int word = 0; word < 4; word++)
		to->address6[word] = from->address6[word];
	for (int byte = 0; byte < 6; byte++)
		to->mac[byte] = from->mac[byte];
}

static __noinline int find_backend(__u32 index, struct backend *found)
{
	struct backend *override = bpf_map_lookup_elem(&overrides, &index);

	if (override && override->enabled) {
		copy_backend(found, override);
		return 1;
	}
	if (index >= BACKENDS || !static_backends[index].enabled)
		return 0;
	copy_backend(found, &static_backends[index]);
	return 1;
}

static __noinline int tally_backend(__u32 index, __u64 bytes)
{
	struct tally *tally = bpf_map_lookup_elem(&per_backend, &index);

	if (!tally)
		return 0;
	tally->packets++;
	tally->bytes += bytes;
	return 1;
}

/* Ports of a packet for the service; 0 if it is for another port or truncated. */
static __always_inline int read_ports(void *cursor, void *end, __u8 protocol, struct connection *connection)
{
	struct udphdr *ports = cursor; /* TCP begins with the same four bytes */

	if ((void *)(ports + 1) > end)
		return 0;
	connection->source_port = ports->source;
	connection->service_port = ports->dest;
	connection->protocol = protocol;
	if (protocol == IPPROTO_TCP)
		return ports->dest == bpf_htons(80) || ports->dest == bpf_htons(443);
	return protocol == IPPROTO_UDP && ports->dest == bpf_htons(53);
}

static __always_inline void readdress(struct ethhdr *eth, const struct backend *backend)
{
	for (int byte = 0; byte < 6; byte++) {
		eth->h_source[byte] = own_mac[byte];
		eth->h_dest[byte] = backend->mac[byte];
	}
}

/* ---- the layers ----------------------------------------------------------------------------------------------- */

static __always_inline int answer_echo(struct ethhdr *eth, struct iphdr *ip, void *end)
{
	struct echo *icmp = (void *)(ip + 1);
	__be32 asker = ip->saddr;

	if ((void *)(icmp + 1) > end || icmp->type != ICMP_ECHO || icmp->code != 0)
		return XDP_PASS;
	for (int byte = 0; byte < 6; byte++) {
		__u8 mac = eth->h_source[byte];

		eth->h_source[byte] = eth->h_dest[byte];
		eth->h_dest[byte] = mac;
	}
	/* Exchanging the addresses leaves the IP checksum as it is; 8 becoming 0 in the high byte adds 8 << 8. */
	ip->saddr = ip->daddr;
	ip->daddr = asker;
	icmp->type = ICMP_ECHOREPLY;
	icmp->checksum = mend(icmp->checksum, (__u16)~bpf_htons(ICMP_ECHO << 8));
	__sync_fetch_and_add(&echoes_answered, 1);
	return XDP_TX;
}

static __always_inline int balance4(struct ethhdr *eth, void *end)
{
	struct iphdr *ip = (void *)(eth + 1);
	struct connection connection = {};
	struct backend backend = {};
	__be32 before, after;
	__u32 change, index;

	if ((void *)(ip + 1) > end || ip->daddr != virtual4)
		return XDP_PASS;
	/* Options and fragments go to the host's stack: the first are rare, the second lack their ports. */
	if (ip->version != 4 || ip->ihl != 5 || ip->frag_off & bpf_htons(IP4_MORE | IP4_OFFSET))
		return XDP_PASS;
	if (ip->protocol == IPPROTO_ICMP)
		return answer_echo(eth, ip, end);
	if (!read_ports(ip + 1, end, ip->protocol, &connection)) {
		__sync_fetch_and_add(&refused, 1);
		return XDP_DROP;
	}
	connection.source[3] = ip->saddr;
	index = choose(&connection);
	if (!find_backend(index, &backend))
		return XDP_ABORTED;

	before = ip->daddr;
	after = backend.address4;
	change = bpf_csum_diff(&before, sizeof(before), &after, sizeof(after), 0);
	if (!mend_transport(ip + 1, end, ip->protocol, change)) {
		__sync_fetch_and_add(&refused, 1);
		return XDP_DROP;
	}
	ip->daddr = after;
	ip->check = mend(ip->check, change);
	readdress(eth, &backend);
	tally_backend(index, end - (void *)eth);
	return XDP_TX;
}

static __always_inline int balance6(struct ethhdr *eth, void *end)
{
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct connection connection = {};
	struct backend backend = {};
	__be32 before[4];
	__u32 change, index, differs = 0;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return XDP_PASS;
	for (int word = 0; word < 4; word++) {
		before[word] = ip->daddr.in6_u.u6_addr32[word];
		connection.source[word] = ip->saddr.in6_u.u6_addr32[word];
		differs |= before[word] ^ virtual6[word];
	}
	if (differs || (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP))
		return XDP_PASS;
	if (!read_ports(ip + 1, end, ip->nexthdr, &connection)) {
		__sync_fetch_and_add(&refused, 1);
		return XDP_DROP;
	}
	index = choose(&connection);
	if (!find_backend(index, &backend))
		return XDP_ABORTED;

	change = bpf_csum_diff(before, sizeof(before), backend.address6, sizeof(backend.address6), 0);
	if (!mend_transport(ip + 1, end, ip->nexthdr, change)) {
		__sync_fetch_and_add(&refused, 1);
		return XDP_DROP;
	}
	for (int word = 0; word < 4; word++)
		ip->daddr.in6_u.u6_addr32[word] = backend.address6[word];
	readdress(eth, &backend);
	tally_backend(index, end - (void *)eth);
	return XDP_TX;
}

SEC("xdp")
int balancer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return balance4(eth, end);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return balance6(eth, end);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
