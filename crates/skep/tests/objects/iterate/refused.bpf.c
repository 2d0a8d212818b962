/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Programs of iterators that attack: none of them is loaded. */
#include "shown.h"

/* A member that nobody keeps. */
SEC("iter/bpf_map")
int unknown_member(struct bpf_iter__bpf_map *ctx)
{
	if (ctx->map)
		BPF_SEQ_PRINTF(ctx->meta->seq, "%p\n", ctx->map->ops);
	return 0;
}

SEC("iter/bpf_map_elem")
int writes_key(struct bpf_iter__bpf_map_elem *ctx)
{
	__u32 *key = ctx->key;

	if (key)
		*key = 1;
	return 0;
}

SEC("iter/bpf_map")
int writes_map(struct bpf_iter__bpf_map *ctx)
{
	if (ctx->map)
		ctx->map->id = 1;
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

/* An iterator over other objects would take its context for its own. */
SEC("iter/bpf_map")
int leaves(struct bpf_iter__bpf_map *ctx)
{
	bpf_tail_call(ctx, &programs, 0);
	return 0;
}

SEC("iter/bpf_map_elem")
int null_value(struct bpf_iter__bpf_map_elem *ctx)
{
	return *(__u8 *)ctx->value & 1;
}

SEC("iter/bpf_map_elem")
int before_value(struct bpf_iter__bpf_map_elem *ctx)
{
	__u8 *value = ctx->value;

	return value ? value[-1] & 1 : 0;
}

/* Not a map that this program may change. */
SEC("iter/bpf_map_elem")
int map_by_address(struct bpf_iter__bpf_map_elem *ctx)
{
	__u32 *key = ctx->key;

	if (key)
		bpf_map_delete_elem(ctx->map, key);
	return 0;
}

SEC("iter/ksym")
int other_target(struct bpf_iter__bpf_map *ctx)
{
	return !ctx;
}

SEC("iter/bpf_map")
int two(struct bpf_iter__bpf_map *ctx)
{
	return 2 + !ctx;
}
