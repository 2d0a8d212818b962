/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * clang: -mcpu=v2
 *
 * Traffic control: shaping by departure times and token buckets, address translation, tunnels, sampling.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define SECOND 1000000000ull

struct bucket {
	struct bpf_spin_lock lock;
	__u32 rate;
	__u64 tokens, filled;
};

struct tuple {
	__be32 source, target;
	__be16 from, to;
};

struct mapping {
	__be32 address;
	__be16 port;
	__u16 flags;
	__u64 seen;
};

struct sample {
	__u64 at;
	__u32 length, interface;
	__u8 head[32];
};

MAP(HASH, 1024, __u32, struct bucket) buckets SEC(".maps");
MAP(HASH, 1024, __u32, __u64) departures SEC(".maps");
MAP(LRU_HASH, 8192, struct tuple, struct mapping) connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} samples SEC(".maps");

SEC("tc")
int shape(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns(), delay, next, *last;
	__u32 key = skb->mark;

	delay = (__u64)skb->wire_len * SECOND / 1250000;
	last = bpf_map_lookup_elem(&departures, &key);
	next = last ? *last + delay : now;
	if (next <= now)
		next = now;
	if (next - now >= 2 * SECOND)
		return TC_ACT_SHOT;
	if (skb->gso_segs > 1)
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

SEC("tc")
int depart(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns(), next, *last;
	__u32 key = skb->mark;

	last = bpf_map_lookup_elem(&departures, &key);
	next = last ? *last + skb->len * 800ull : now;
	if (next < now)
		next = now;
	if (bpf_map_update_elem(&departures, &key, &next, BPF_ANY))
		return TC_ACT_SHOT;
	skb->tstamp = next;
	return TC_ACT_OK;
}

SEC("tc")
int police(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex, cost = skb->len;
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &key);
	__u64 now = bpf_ktime_get_ns();
	int verdict = TC_ACT_SHOT;

	if (!bucket)
		return TC_ACT_OK;
	bpf_spin_lock(&bucket->lock);
	if (now > bucket->filled) {
		bucket->tokens += (now - bucket->filled) * bucket->rate / SECOND;
		bucket->filled = now;
	}
	if (bucket->tokens >= cost) {
		bucket->tokens -= cost;
		verdict = TC_ACT_OK;
	}
	bpf_spin_unlock(&bucket->lock);
	return verdict;
}

static __always_inline int rewrite(struct __sk_buff *skb, __be32 from, __be32 to, __u8 protocol)
{
	__u32 ip = sizeof(struct ethhdr), l4 = ip + sizeof(struct iphdr);
	__u64 flags = BPF_F_PSEUDO_HDR | sizeof(to);

	if (protocol == IPPROTO_TCP) {
		if (bpf_l4_csum_replace(skb, l4 + offsetof(struct tcphdr, check), from, to, flags))
			return -1;
	} else if (protocol == IPPROTO_UDP) {
		flags |= BPF_F_MARK_MANGLED_0;
		if (bpf_l4_csum_replace(skb, l4 + offsetof(struct udphdr, check), from, to, flags))
			return -1;
	}
	if (bpf_l3_csum_replace(skb, ip + offsetof(struct iphdr, check), from, to, sizeof(to)))
		return -1;
	return bpf_skb_store_bytes(skb, ip + offsetof(struct iphdr, saddr), &to, sizeof(to), 0);
}

SEC("tc")
int translate(struct __sk_buff *skb)
{
	struct ethhdr *eth = BEGIN(skb);
	struct iphdr *ip = (void *)(eth + 1);
	struct mapping fresh = {}, *mapping;
	struct tuple tuple = {};
	__be16 *ports;
	__u8 protocol;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	if ((void *)(ip + 1) + 4 > END(skb)) {
		if (bpf_skb_pull_data(skb, sizeof(*eth) + sizeof(*ip) + 4))
			return TC_ACT_SHOT;
		eth = BEGIN(skb);
		ip = (void *)(eth + 1);
		if ((void *)(ip + 1) + 4 > END(skb))
			return TC_ACT_SHOT;
	}
	protocol = ip->protocol;
	ports = (void *)(ip + 1);
	tuple.source = ip->saddr;
	tuple.target = ip->daddr;
	tuple.from = ports[0];
	tuple.to = ports[1];
	mapping = bpf_map_lookup_elem(&connections, &tuple);
	if (!mapping) {
		fresh.address = bpf_htonl(0x0a000001);
		fresh.port = bpf_htons(1024 + (bpf_get_prandom_u32() & 0x7fff));
		if (bpf_map_update_elem(&connections, &tuple, &fresh, BPF_NOEXIST))
			return TC_ACT_SHOT;
		mapping = &fresh;
	}
	mapping->seen = bpf_ktime_get_ns();
	if (rewrite(skb, tuple.source, mapping->address, protocol))
		return TC_ACT_SHOT;
	return bpf_redirect_neigh(skb->ifindex, 0, 0, 0);
}

SEC("tc")
int tunnel(struct __sk_buff *skb)
{
	struct bpf_tunnel_key key = {};

	if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), 0) < 0) {
		key.tunnel_id = skb->mark & 0xffffff;
		key.remote_ipv4 = 0x0a000002;
		key.tunnel_ttl = 64;
		if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key), BPF_F_ZERO_CSUM_TX))
			return TC_ACT_SHOT;
		skb->cb[0] = key.tunnel_id;
		return bpf_redirect(7, 0);
	}
	skb->mark = key.tunnel_id;
	skb->queue_mapping = 1;
	skb->priority = skb->cb[4];
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int sampled(struct __sk_buff *skb)
{
	struct sample *sample;

	if (bpf_get_prandom_u32() & 0xff)
		return TC_ACT_UNSPEC;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample)
		return TC_ACT_UNSPEC;
	sample->at = bpf_ktime_get_boot_ns();
	sample->length = skb->len;
	sample->interface = skb->ingress_ifindex;
	if (bpf_skb_load_bytes(skb, 0, sample->head, sizeof(sample->head))) {
		bpf_ringbuf_discard(sample, BPF_RB_NO_WAKEUP);
		return TC_ACT_UNSPEC;
	}
	bpf_ringbuf_submit(sample, 0);
	return TC_ACT_UNSPEC;
}

/* On one way the lock is still held at the end. */
SEC("tc")
int bad_lock_at_the_end(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &key);

	if (!bucket)
		return TC_ACT_OK;
	bpf_spin_lock(&bucket->lock);
	if (bucket->tokens < skb->len)
		return TC_ACT_SHOT;
	bucket->tokens -= skb->len;
	bpf_spin_unlock(&bucket->lock);
	return TC_ACT_OK;
}

/* Asking for the time takes a call. */
SEC("tc")
int bad_call_under_a_lock(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &key);

	if (!bucket)
		return TC_ACT_OK;
	bpf_spin_lock(&bucket->lock);
	bucket->filled = bpf_ktime_get_ns();
	bpf_spin_unlock(&bucket->lock);
	return TC_ACT_OK;
}

/* A lock is taken, and another one's is given back. */
SEC("tc")
int bad_lock_of_another(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct bucket *one = bpf_map_lookup_elem(&buckets, &key), *two;

	key = skb->ingress_ifindex;
	two = bpf_map_lookup_elem(&buckets, &key);
	if (!one || !two)
		return TC_ACT_OK;
	bpf_spin_lock(&one->lock);
	one->tokens = 0;
	bpf_spin_unlock(&two->lock);
	return TC_ACT_OK;
}

/* Where the bytes cannot be copied, the record is forgotten. */
SEC("tc")
int bad_forgotten_record(struct __sk_buff *skb)
{
	struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);

	if (!sample)
		return TC_ACT_OK;
	if (bpf_skb_load_bytes(skb, 0, sample->head, sizeof(sample->head)))
		return TC_ACT_OK;
	bpf_ringbuf_submit(sample, 0);
	return TC_ACT_OK;
}

/* What was submitted belongs to the reader. */
SEC("tc")
int bad_record_after_its_end(struct __sk_buff *skb)
{
	struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);

	if (!sample)
		return TC_ACT_OK;
	sample->at = 0;
	bpf_ringbuf_submit(sample, 0);
	sample->length = skb->len;
	return TC_ACT_OK;
}

/* Of a packet's description, its length is not for writing. */
SEC("tc")
int bad_length_written(struct __sk_buff *skb)
{
	skb->len = 64;
	return TC_ACT_OK;
}

/* Storing bytes may move the packet. */
SEC("tc")
int bad_header_after_a_store(struct __sk_buff *skb)
{
	struct ethhdr *eth = BEGIN(skb);
	__u16 type = bpf_htons(ETH_P_IP);

	if ((void *)(eth + 1) > END(skb))
		return TC_ACT_OK;
	bpf_skb_store_bytes(skb, 12, &type, sizeof(type), 0);
	return eth->h_proto == type ? TC_ACT_OK : TC_ACT_SHOT;
}

/* Departure times are 64 bits. */
SEC("tc")
int bad_half_a_time(struct __sk_buff *skb)
{
	*(volatile __u32 *)&skb->tstamp = 0;
	return TC_ACT_OK;
}
