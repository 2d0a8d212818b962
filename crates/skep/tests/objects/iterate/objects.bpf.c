/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Programs of iterators over maps, programs, links and sockets. */
#include "shown.h"

SEC("iter/bpf_map")
int maps(struct bpf_iter__bpf_map *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct bpf_map *map = ctx->map;

	if (!map) {
		BPF_SEQ_PRINTF(seq, "%llu maps\n", ctx->meta->seq_num);
		return 0;
	}
	BPF_SEQ_PRINTF(seq, "%u %s %u %u %u %u", map->id, map->name, map->map_type, map->key_size, map->value_size,
		       map->max_entries);
	BPF_SEQ_PRINTF(seq, " %ld %ld\n", map->refcnt.counter, map->usercnt.counter);
	return 0;
}

SEC("iter/bpf_prog")
int programs(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *prog = ctx->prog;

	if (prog)
		BPF_SEQ_PRINTF(ctx->meta->seq, "%u %s %u %x\n", prog->aux->id, prog->aux->name, prog->type,
			       prog->tag[7]);
	return 0;
}

SEC("iter.s/bpf_link")
int links(struct bpf_iter__bpf_link *ctx)
{
	struct bpf_link *link = ctx->link;

	if (link)
		BPF_SEQ_PRINTF(ctx->meta->seq, "%u %u %s\n", link->id, link->type, link->prog->aux->name);
	return 0;
}

SEC("iter/udp")
int udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *udp = ctx->udp_sk;
	struct sock_common *common;

	if (!udp)
		return 0;
	common = &udp->inet.sk.__sk_common;
	BPF_SEQ_PRINTF(ctx->meta->seq, "udp %u %llx %x", common->skc_family, common->skc_addrpair,
		       common->skc_portpair);
	BPF_SEQ_PRINTF(ctx->meta->seq, " of %u in %u\n", (__u32)ctx->uid, (__u32)ctx->bucket);
	return 0;
}

SEC("iter/tcp")
int tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;

	if (common)
		BPF_SEQ_PRINTF(ctx->meta->seq, "tcp %u %u of %u\n", common->skc_family, common->skc_state,
			       (__u32)ctx->uid);
	return 0;
}
