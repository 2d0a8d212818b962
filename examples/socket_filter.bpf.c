/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Two socket filters in one section. A socket filter returns how many bytes of the packet to keep; 0 refuses it.
 * Both read the packet through bpf_skb_load_bytes, as filters that must not assume linear packets do.
 */
#include "common.h"

/* Keeps whole packets of DNS over UDP and IPv4, as `tcpdump udp port 53` would, and nothing else. */
SEC("socket")
int keep_dns(struct __sk_buff *skb)
{
	struct udphdr udp;
	struct iphdr ip;
	__be16 type;

	if (bpf_skb_load_bytes(skb, 12, &type, sizeof(type)) || type != bpf_htons(ETH_P_IP))
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.ihl < 5 || ip.protocol != IPPROTO_UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + ip.ihl * 4, &udp, sizeof(udp)))
		return 0;
	if (udp.source != bpf_htons(53) && udp.dest != bpf_htons(53))
		return 0;
	return skb->len;
}

/* Keeps the first 96 bytes of everything: headers for statistics, no payload. */
SEC("socket")
int keep_headers(struct __sk_buff *skb)
{
	return skb->len < 96 ? skb->len : 96;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
