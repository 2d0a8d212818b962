/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The firewall's tests in C: the program is included as it is, and runs by a tail call.
 */
#include "../firewall.bpf.c"
#include "skep_test.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} entry_call_map SEC(".maps") = {
	.values = { [0] = (void *)&firewall },
};

/* An IPv4 TCP packet to that port; the rest of the buffer is cut off. */
static __always_inline int write_tcp(struct xdp_md *ctx, __u16 port)
{
	void *data, *end;
	struct ethhdr *eth;
	struct iphdr *ip;
	struct tcphdr *tcp;
	const int bytes = sizeof(*eth) + sizeof(*ip) + sizeof(*tcp);

	if (bpf_xdp_adjust_tail(ctx, bytes - (int)(ctx->data_end - ctx->data)))
		return TEST_ERROR;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	ip = (void *)(eth + 1);
	tcp = (void *)(ip + 1);
	if ((void *)(tcp + 1) > end)
		return TEST_ERROR;
	eth->h_proto = bpf_htons(ETH_P_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*tcp));
	ip->ttl = 64;
	ip->protocol = IPPROTO_TCP;
	ip->saddr = IP4(10, 0, 0, 1);
	ip->daddr = IP4(10, 0, 0, 2);
	tcp->doff = 5;
	tcp->dest = bpf_htons(port);
	return TEST_PASS;
}

PKTGEN("xdp", "telnet_is_dropped")
int telnet_pktgen(struct xdp_md *ctx)
{
	return write_tcp(ctx, 23);
}

SETUP("xdp", "telnet_is_dropped")
int telnet_setup(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &entry_call_map, 0);
	return TEST_ERROR;
}

CHECK("xdp", "telnet_is_dropped")
int telnet_check(struct xdp_md *ctx)
{
	__u32 status, key = DROP_PORT;
	struct tally *tally;

	test_assert(test_packet(ctx, sizeof(struct ethhdr), &status));
	if (status != XDP_DROP)
		test_fatal("the firewall returned %d", status);
	tally = bpf_map_lookup_elem(&verdicts, &key);
	test_assert(tally && tally->packets == 1);
	return TEST_PASS;
}

PKTGEN("xdp", "a_port_of_the_map_is_dropped")
int port_pktgen(struct xdp_md *ctx)
{
	return write_tcp(ctx, 8080);
}

SETUP("xdp", "a_port_of_the_map_is_dropped")
int port_setup(struct xdp_md *ctx)
{
	struct service service = { .protocol = IPPROTO_TCP, .port = bpf_htons(8080) };
	__u32 one = 1;

	bpf_map_update_elem(&blocked_services, &service, &one, BPF_ANY);
	bpf_tail_call(ctx, &entry_call_map, 0);
	return TEST_ERROR;
}

CHECK("xdp", "a_port_of_the_map_is_dropped")
int port_check(struct xdp_md *ctx)
{
	__u32 status;
	struct ethhdr *eth = test_packet(ctx, sizeof(*eth), &status);

	test_assert(eth);
	test_assert(status == XDP_DROP);
	test_assert(eth->h_proto == bpf_htons(ETH_P_IP));
	return TEST_PASS;
}
