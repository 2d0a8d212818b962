/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks DNS over IPv4 as expedited (DSCP 46) at a TC hook, through the helpers that copy packet bytes instead of
 * packet pointers, and updates the header checksum.
 */
#include "common.h"

#define TC_ACT_OK 0
#define EXPEDITED (46 << 2)

SEC("tc")
int remark(struct __sk_buff *skb)
{
	struct iphdr ip, marked;
	struct udphdr udp;
	__be16 type;
	__u32 sum;

	if (bpf_skb_load_bytes(skb, 12, &type, sizeof(type)) || type != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.ihl != 5 || ip.protocol != IPPROTO_UDP)
		return TC_ACT_OK;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &udp, sizeof(udp)))
		return TC_ACT_OK;
	if (udp.source != bpf_htons(53) && udp.dest != bpf_htons(53))
		return TC_ACT_OK;

	marked = ip;
	marked.tos = EXPEDITED | (ip.tos & 3); /* the two low bits belong to congestion notification */
	marked.check = 0;
	sum = bpf_csum_diff(0, 0, (__be32 *)&marked, sizeof(marked), 0);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	marked.check = ~sum;
	bpf_skb_store_bytes(skb, ETH_HLEN, &marked, sizeof(marked), 0);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
