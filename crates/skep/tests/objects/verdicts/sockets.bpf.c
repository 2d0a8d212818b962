/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Programs that choose sockets, and those that watch them: look-up, steering, socket maps, TCP's own events.
 */
#include "verdicts.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#define AF_INET 2
#define TCP_ESTABLISHED 1
#define TCP_LISTEN 10

struct four {
	__be32 remote, local;
	__u32 remote_port, local_port;
};

struct rate {
	__u32 rtt, samples;
};

MAP(SOCKMAP, 16, __u32, __u64) listeners SEC(".maps");
MAP(SOCKHASH, 1024, struct four, __u64) peers SEC(".maps");
MAP(REUSEPORT_SOCKARRAY, 16, __u32, __u64) workers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct rate);
} rates SEC(".maps");

SEC("sk_lookup")
int ports_to_one(struct bpf_sk_lookup *ctx)
{
	__u32 key = 0;
	struct bpf_sock *sk;
	long error;

	if (ctx->family != AF_INET || ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	if (ctx->local_port < 7000 || ctx->local_port > 7999)
		return SK_PASS;
	if ((ctx->remote_ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000))
		key = 1;
	sk = bpf_map_lookup_elem(&listeners, &key);
	if (!sk)
		return SK_DROP;
	error = bpf_sk_assign(ctx, sk, BPF_SK_LOOKUP_F_REPLACE);
	bpf_sk_release(sk);
	return error ? SK_DROP : SK_PASS;
}

SEC("sk_reuseport")
int by_hash(struct sk_reuseport_md *ctx)
{
	__u32 key = ctx->hash % 16;

	if (ctx->ip_protocol != IPPROTO_UDP)
		return SK_PASS;
	if (bpf_sk_select_reuseport(ctx, &workers, &key, 0) == 0)
		return SK_PASS;
	key = 0;
	return bpf_sk_select_reuseport(ctx, &workers, &key, 0) ? SK_DROP : SK_PASS;
}

SEC("sockops")
int connected(struct bpf_sock_ops *ctx)
{
	struct four four = {};

	switch (ctx->op) {
	case BPF_SOCK_OPS_TIMEOUT_INIT:
		ctx->reply = 10;
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (ctx->family != AF_INET)
			break;
		four.remote = ctx->remote_ip4;
		four.local = ctx->local_ip4;
		four.remote_port = ctx->remote_port;
		four.local_port = bpf_htonl(ctx->local_port);
		bpf_sock_hash_update(ctx, &peers, &four, BPF_NOEXIST);
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
		break;
	case BPF_SOCK_OPS_RTT_CB: {
		struct rate *rate = ctx->sk ? bpf_sk_storage_get(&rates, ctx->sk, 0,
								  BPF_SK_STORAGE_GET_F_CREATE) : 0;

		if (rate) {
			rate->rtt = ctx->srtt_us >> 3;
			rate->samples++;
		}
		break;
	}
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] != TCP_ESTABLISHED && ctx->snd_cwnd < 4)
			bpf_printk("closed with %u lost of %u", ctx->total_retrans, ctx->segs_out);
		break;
	}
	return 1;
}

SEC("sockops")
int header_option(struct bpf_sock_ops *ctx)
{
	__u8 option[4] = { 0xfd, 4, 0xeb, 0x9f };

	if (ctx->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB)
		bpf_reserve_hdr_opt(ctx, sizeof(option), 0);
	else if (ctx->op == BPF_SOCK_OPS_WRITE_HDR_OPT_CB)
		bpf_store_hdr_opt(ctx, option, sizeof(option), 0);
	else if (ctx->op == BPF_SOCK_OPS_PARSE_HDR_OPT_CB) {
		struct tcphdr *tcp = ctx->skb_data;

		if ((void *)(tcp + 1) <= ctx->skb_data_end && tcp->psh)
			bpf_load_hdr_opt(ctx, option, sizeof(option), 0);
	}
	return 1;
}

SEC("sk_msg")
int passed_on(struct sk_msg_md *msg)
{
	struct four four = {
		msg->local_ip4, msg->remote_ip4, bpf_htonl(msg->local_port), msg->remote_port,
	};
	char *data = msg->data;

	if (msg->size > 4096)
		bpf_msg_apply_bytes(msg, 4096);
	if ((void *)(data + 4) > msg->data_end) {
		if (bpf_msg_pull_data(msg, 0, 4, 0))
			return SK_DROP;
		data = msg->data;
		if ((void *)(data + 4) > msg->data_end)
			return SK_DROP;
	}
	if (data[0] == 'Q')
		return SK_DROP;
	return bpf_msg_redirect_hash(msg, &peers, &four, BPF_F_INGRESS);
}

SEC("sk_skb/stream_parser")
int framed(struct __sk_buff *skb)
{
	__be32 length;

	if (bpf_skb_load_bytes(skb, 0, &length, sizeof(length)) < 0)
		return 0;
	return bpf_ntohl(length) + 4;
}

SEC("sk_skb/stream_verdict")
int turned(struct __sk_buff *skb)
{
	__u32 key = skb->local_port & 15;

	if (bpf_skb_adjust_room(skb, 4, 0, 0))
		return SK_DROP;
	return bpf_sk_redirect_map(skb, &listeners, key, 0);
}

SEC("tc")
int held_by_someone(struct __sk_buff *skb)
{
	struct ethhdr *eth = BEGIN(skb);
	struct iphdr *ip = (void *)(eth + 1);
	struct bpf_sock_tuple *tuple = (void *)&ip->saddr;
	struct bpf_sock *sk;
	int verdict = TC_ACT_OK;

	if ((void *)tuple + sizeof(tuple->ipv4) > END(skb) || ip->protocol != IPPROTO_TCP)
		return TC_ACT_OK;
	sk = bpf_skc_lookup_tcp(skb, tuple, sizeof(tuple->ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return TC_ACT_SHOT;
	if (sk->state == TCP_LISTEN) {
		struct bpf_sock *full = bpf_tcp_sock(sk) ? sk : 0;

		verdict = full ? TC_ACT_OK : TC_ACT_SHOT;
	}
	bpf_sk_release(sk);
	return verdict;
}

/* What was found is never given back. */
SEC("tc")
int bad_socket_kept(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;

	sk = bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	return sk ? TC_ACT_OK : TC_ACT_SHOT;
}

/* Given back, and then looked at. */
SEC("tc")
int bad_socket_after_release(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;

	sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return TC_ACT_SHOT;
	bpf_sk_release(sk);
	return sk->mark ? TC_ACT_OK : TC_ACT_SHOT;
}

/* Given back twice on one way. */
SEC("sk_lookup")
int bad_released_twice(struct bpf_sk_lookup *ctx)
{
	__u32 key = 0;
	struct bpf_sock *sk = bpf_map_lookup_elem(&listeners, &key);

	if (!sk)
		return SK_PASS;
	if (bpf_sk_assign(ctx, sk, 0))
		bpf_sk_release(sk);
	bpf_sk_release(sk);
	return SK_PASS;
}

/* 2 is no verdict on a look-up. */
SEC("sk_lookup")
int bad_verdict(struct bpf_sk_lookup *ctx)
{
	return ctx->local_port == 80 ? 2 : SK_PASS;
}

/* A socket's own fields are not for writing. */
SEC("tc")
int bad_socket_written(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	if (!sk)
		return TC_ACT_OK;
	sk->mark = 1;
	return TC_ACT_OK;
}

/* Only full sockets have a protocol and a mark. */
SEC("tc")
int bad_half_a_socket(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	return sk && sk->mark ? TC_ACT_OK : TC_ACT_SHOT;
}

/* A message's bytes may be elsewhere after they were pulled. */
SEC("sk_msg")
int bad_bytes_from_before(struct sk_msg_md *msg)
{
	char *data = msg->data;

	if ((void *)(data + 4) > msg->data_end)
		return SK_DROP;
	bpf_msg_pull_data(msg, 0, 4, 0);
	return data[0] == 'Q' ? SK_DROP : SK_PASS;
}
