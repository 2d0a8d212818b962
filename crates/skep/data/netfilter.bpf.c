/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The types of what programs of type netfilter are given here. Those of the buffer have the places of skep's own
 * `SkbContext`, of which programs see these members.
 */
#include <linux/types.h>

struct net_device {
	int ifindex;
};

struct nf_hook_state {
	__u8 hook;
	__u8 pf;
	struct net_device *in;
	struct net_device *out;
};

struct sk_buff {
	/* No members, so no program reads addresses of the host: nine words. */
	__u64 : 64, : 64, : 64, : 64, : 64, : 64, : 64, : 64, : 64;
	unsigned int len;
	__u32 : 32;
	__u32 mark;
	__u32 : 32;
	__be16 protocol;
	__u32 : 16, : 32, : 32, : 32;
	__u32 priority;
	__u32 : 32, : 32, : 32, : 32, : 32, : 32, : 32, : 32;
	__u32 hash;
};

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

/* The compiler describes the structures of variables. */
struct bpf_nf_ctx bpf_nf_ctx;
struct nf_hook_state nf_hook_state;
struct sk_buff sk_buff;
struct net_device net_device;
