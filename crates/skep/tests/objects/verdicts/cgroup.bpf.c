/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a control group's programs may say of its sockets, devices and settings.
 */
#include "verdicts.h"

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>

#define AF_INET 2
#define AF_INET6 10
#define SOCK_RAW 3

struct endpoint {
	__be32 address;
	__u32 port; /* in network byte order, as the contexts have it */
};

struct usage {
	__u64 bytes;
	struct bpf_spin_lock lock;
};

MAP(HASH, 256, struct endpoint, struct endpoint) services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_STORAGE);
	__type(key, struct bpf_cgroup_storage_key);
	__type(value, struct usage);
} usage SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct endpoint);
} origins SEC(".maps");

SEC("cgroup/connect4")
int to_a_backend(struct bpf_sock_addr *ctx)
{
	struct endpoint service = { ctx->user_ip4, ctx->user_port }, *backend, *origin;

	if (ctx->protocol != IPPROTO_TCP && ctx->protocol != IPPROTO_UDP)
		return 1;
	backend = bpf_map_lookup_elem(&services, &service);
	if (!backend)
		return 1;
	if (ctx->sk) {
		origin = bpf_sk_storage_get(&origins, ctx->sk, &service, BPF_SK_STORAGE_GET_F_CREATE);
		if (!origin)
			return 0;
	}
	ctx->user_ip4 = backend->address;
	ctx->user_port = backend->port;
	return 1;
}

SEC("cgroup/getpeername4")
int as_the_service(struct bpf_sock_addr *ctx)
{
	struct endpoint *origin = ctx->sk ? bpf_sk_storage_get(&origins, ctx->sk, 0, 0) : 0;

	if (origin) {
		ctx->user_ip4 = origin->address;
		ctx->user_port = origin->port;
	}
	return 1;
}

SEC("cgroup/bind6")
int mapped_addresses(struct bpf_sock_addr *ctx)
{
	if (ctx->family != AF_INET6 || ctx->type == SOCK_RAW)
		return 0;
	if (ctx->user_ip6[0] == 0 && ctx->user_ip6[1] == 0 && ctx->user_ip6[2] == bpf_htonl(0xffff))
		ctx->user_ip6[3] = bpf_htonl(INADDR_LOOPBACK);
	return 1 | (bpf_ntohs(ctx->user_port) < 1024 ? 2 : 0);
}

SEC("cgroup_skb/egress")
int metered(struct __sk_buff *skb)
{
	struct usage *mine = bpf_get_local_storage(&usage, 0);
	struct iphdr *ip = BEGIN(skb);
	__u64 total;

	bpf_spin_lock(&mine->lock);
	mine->bytes += skb->len;
	total = mine->bytes;
	bpf_spin_unlock(&mine->lock);
	if ((void *)(ip + 1) <= END(skb) && ip->version == 4 && ip->protocol == IPPROTO_ICMP)
		return 1;
	/* 2 lets it out and says that the network is congested. */
	return total < 1 << 20 ? 1 : total < 1 << 24 ? 3 : 0;
}

SEC("cgroup/sock_create")
int no_raw_sockets(struct bpf_sock *sk)
{
	if (sk->type == SOCK_RAW && (sk->family == AF_INET || sk->family == AF_INET6))
		return 0;
	sk->mark = 7;
	sk->priority = 6;
	return 1;
}

SEC("cgroup/dev")
int devices(struct bpf_cgroup_dev_ctx *ctx)
{
	__u32 kind = ctx->access_type & 0xffff, access = ctx->access_type >> 16;

	if (kind == BPF_DEVCG_DEV_CHAR && ctx->major == 1)
		return ctx->minor == 3 || ctx->minor == 5 || ctx->minor == 9;
	return access == BPF_DEVCG_ACC_READ;
}

SEC("cgroup/sysctl")
int settings(struct bpf_sysctl *ctx)
{
	char name[32], value[16];
	unsigned long number;
	int length;

	if (!ctx->write)
		return 1;
	length = bpf_sysctl_get_name(ctx, name, sizeof(name), 0);
	if (length < 0 || bpf_strncmp(name, 13, "net/ipv4/tcp_") == 0)
		return 0;
	length = bpf_sysctl_get_new_value(ctx, value, sizeof(value));
	if (length < 0 || bpf_strtoul(value, sizeof(value), 0, &number) < 0)
		return 0;
	return number < 4096;
}

SEC("cgroup/setsockopt")
int options(struct bpf_sockopt *ctx)
{
	__u32 *value = ctx->optval;

	if (ctx->level != 6 || ctx->optname != 13)
		return 1;
	if ((void *)(value + 1) > ctx->optval_end)
		return 0;
	if (*value > 16)
		*value = 16;
	ctx->optlen = 4;
	return 1;
}

SEC("cgroup/getsockopt")
int shown_options(struct bpf_sockopt *ctx)
{
	__u8 *value = ctx->optval;

	if (ctx->level == 0xdead && (void *)(value + 1) <= ctx->optval_end) {
		*value = 0x80;
		ctx->optlen = 1;
		barrier();
		ctx->retval = 0;
	}
	return 1;
}

SEC("cgroup/connect4")
int socket_of_a_connection(struct bpf_sock_addr *ctx)
{
	return ctx->sk->family == AF_INET;
}

/* Two neighbours that the compiler writes at once, as no rule allows. */
SEC("cgroup/getsockopt")
int bad_two_fields_at_once(struct bpf_sockopt *ctx)
{
	ctx->optlen = 1;
	ctx->retval = 0;
	return 1;
}

/* Either it may connect or not: there is no third. */
SEC("cgroup/connect4")
int bad_third_answer(struct bpf_sock_addr *ctx)
{
	return ctx->user_port == 0 ? 2 : 1;
}

/* An address of the other family. */
SEC("cgroup/connect4")
int bad_other_family(struct bpf_sock_addr *ctx)
{
	ctx->user_ip6[0] = 0;
	return 1;
}

/* How much of the packet may go is for egress to say, not for ingress. */
SEC("cgroup_skb/ingress")
int bad_congestion(struct __sk_buff *skb)
{
	return skb->len > 1000 ? 2 : 1;
}

/* The socket is there to look at. */
SEC("cgroup/sock_create")
int bad_family_written(struct bpf_sock *sk)
{
	sk->family = AF_INET6;
	return 1;
}

/* Settings end where they end. */
SEC("cgroup/setsockopt")
int bad_value_unchecked(struct bpf_sockopt *ctx)
{
	__u32 *value = ctx->optval;

	return *value == 1;
}
