/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Hooks with less traffic: packets on their way through lightweight tunnels, dissectors, program types whose contexts
 * differ in one field or another.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

SEC("flow_dissector")
int dissected(struct __sk_buff *skb)
{
	struct bpf_flow_keys *keys = skb->flow_keys;
	void *end = END(skb), *at = BEGIN(skb);
	struct iphdr *ip = at + keys->nhoff, copy;
	struct {
		__be16 source, target;
	} *ports;
	__u32 transport;

	if (keys->nhoff > 64)
		return BPF_DROP;
	ip = at + keys->nhoff;
	if (keys->n_proto != bpf_htons(ETH_P_IP))
		return BPF_DROP;
	if ((void *)(ip + 1) > end) {
		if (bpf_skb_load_bytes(skb, keys->nhoff, &copy, sizeof(copy)))
			return BPF_DROP;
		ip = &copy;
	}
	keys->addr_proto = ETH_P_IP;
	keys->ipv4_src = ip->saddr;
	keys->ipv4_dst = ip->daddr;
	keys->ip_proto = ip->protocol;
	keys->is_frag = (ip->frag_off & bpf_htons(0x3fff)) != 0;
	transport = keys->nhoff + ip->ihl * 4;
	keys->thoff = transport;
	if (keys->is_frag || transport > 512)
		return BPF_OK;
	ports = at + transport;
	if ((void *)(ports + 1) > end)
		return BPF_DROP;
	keys->sport = ports->source;
	keys->dport = ports->target;
	return BPF_OK;
}

SEC("lwt_xmit")
int encapsulated(struct __sk_buff *skb)
{
	struct {
		struct iphdr ip;
		__be16 flags, protocol;
	} gre = {};

	gre.ip.version = 4;
	gre.ip.ihl = 5;
	gre.ip.ttl = 64;
	gre.ip.protocol = IPPROTO_GRE;
	gre.ip.tot_len = bpf_htons(skb->len + sizeof(gre));
	gre.ip.daddr = bpf_htonl(0x0a000003);
	gre.protocol = skb->protocol;
	if (bpf_lwt_push_encap(skb, BPF_LWT_ENCAP_IP, &gre, sizeof(gre)))
		return BPF_DROP;
	if (bpf_skb_change_head(skb, ETH_HLEN, 0))
		return BPF_DROP;
	return BPF_LWT_REROUTE;
}

SEC("lwt_in")
int looked_into(struct __sk_buff *skb)
{
	struct ipv6hdr *ip = BEGIN(skb);

	if ((void *)(ip + 1) > END(skb))
		return BPF_DROP;
	skb->mark = ip->hop_limit;
	skb->cb[1] = bpf_get_hash_recalc(skb);
	return ip->version == 6 ? BPF_OK : BPF_DROP;
}

SEC("xdp/devmap")
int on_the_way_out(struct xdp_md *ctx)
{
	struct ethhdr *eth = BEGIN(ctx);

	if ((void *)(eth + 1) > END(ctx) || ctx->ingress_ifindex == ctx->egress_ifindex)
		return XDP_DROP;
	eth->h_source[5] = ctx->egress_ifindex;
	return XDP_PASS;
}

SEC("xdp")
int with_metadata(struct xdp_md *ctx)
{
	struct {
		__u32 mark, hash;
	} *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return XDP_ABORTED;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > BEGIN(ctx))
		return XDP_ABORTED;
	meta->mark = ctx->rx_queue_index;
	meta->hash = bpf_get_prandom_u32();
	return XDP_PASS;
}

SEC("tc")
int by_metadata(struct __sk_buff *skb)
{
	__u32 *meta = (void *)(long)skb->data_meta;

	if ((void *)(meta + 2) > BEGIN(skb))
		return -1;
	skb->mark = meta[0];
	skb->tc_index = meta[1] & 0xff;
	return 0;
}

SEC("syscall")
int by_hand(struct {
	__u64 pointer;
	__u32 length, result;
} *ctx)
{
	__u8 bytes[32];
	__u32 length = ctx->length;

	if (length > sizeof(bytes))
		length = sizeof(bytes);
	if (bpf_copy_from_user(bytes, length, (void *)ctx->pointer))
		return 1;
	ctx->result = length ? bytes[0] : 0;
	return 0;
}

/* A dissector says only what it found. */
SEC("flow_dissector")
int bad_mark(struct __sk_buff *skb)
{
	return skb->mark ? BPF_OK : BPF_DROP;
}

/* Behind the keys there is nothing. */
SEC("flow_dissector")
int bad_key(struct __sk_buff *skb)
{
	struct bpf_flow_keys *keys = skb->flow_keys;

	*(volatile __u32 *)(keys + 1) = 0;
	return BPF_OK;
}

/* On the way in packets are not to be written. */
SEC("lwt_in")
int bad_packet_written(struct __sk_buff *skb)
{
	__u8 *at = BEGIN(skb);

	if (at + 1 > (__u8 *)END(skb))
		return BPF_DROP;
	*at = 0;
	return BPF_OK;
}

/* Where a packet leaves is known once it leaves, and is not for writing. */
SEC("xdp")
int bad_way_out_written(struct xdp_md *ctx)
{
	*(volatile __u32 *)&ctx->egress_ifindex = 1;
	return XDP_PASS;
}

/* Metadata lies before the packet, and the packet does not lie behind metadata that was not checked against it. */
SEC("tc")
int bad_metadata_against_the_end(struct __sk_buff *skb)
{
	__u32 *meta = (void *)(long)skb->data_meta;

	if ((void *)(meta + 2) > END(skb))
		return -1;
	skb->mark = meta[0];
	return 0;
}

/* The end of the packet is an end, not a place. */
SEC("xdp")
int bad_end_moved(struct xdp_md *ctx)
{
	__u8 *end = END(ctx);

	if ((void *)(end - 4) < BEGIN(ctx))
		return XDP_DROP;
	return end[-1] ? XDP_PASS : XDP_DROP;
}
