/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Common definitions of the packet examples: header layouts that the UAPI headers lack, and numbers of the
 * protocols that they parse. Everything here is in network byte order unless stated otherwise.
 */
#ifndef SKEP_EXAMPLES_COMMON_H
#define SKEP_EXAMPLES_COMMON_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* One IEEE 802.1Q or 802.1ad tag, as it follows the EtherType that announced it. */
struct vlan_tag {
	__be16 control;
	__be16 inner_type;
};

/* A frame may carry a customer tag inside a service tag; more than two are not legitimate. */
#define MAX_VLAN_TAGS 2

/* The common start of hop-by-hop, routing, destination and authentication headers. */
struct ext_header {
	__u8 next;
	__u8 length;
};

/* The IPv6 fragment header (RFC 8200, 4.5). */
struct frag_header {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* 13 bits of offset in units of 8 bytes, 2 reserved, 1 "more" */
	__be32 id;
};

/* A chain longer than this is refused: RFC 8200 recommends each header at most once. */
#define MAX_EXT_HEADERS 4

#define IP4_MORE 0x2000
#define IP4_OFFSET 0x1fff
#define IP6_MORE 0x0001
#define IP6_OFFSET 0xfff8

static __always_inline int is_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

#endif
