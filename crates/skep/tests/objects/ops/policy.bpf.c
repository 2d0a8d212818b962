/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A plug-in for the cache of host.bpf.c. Its own declarations agree with the host's; it needs only the members that it
 * reads, wherever the host has them.
 *
 * clang: -Wno-unused-parameter
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct owner {
	__s32 quota;
};

struct request {
	__u32 size;
	struct owner *owner;
};
#pragma clang attribute pop

struct cache_policy {
	__u32 (*admit)(struct request *request, __u64 room);
	void (*evicted)(__u64 key, __s8 why);
	__s16 (*score)(struct request *request, __s32 now, _Bool hot);
	__u64 (*busy)(struct request *request);
	char name[16];
	__u32 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __s64);
} gone SEC(".maps");

SEC("struct_ops/admit")
__u32 BPF_PROG(admit, struct request *request, __u64 room)
{
	return request->size <= room && request->owner->quota >= 0;
}

SEC("struct_ops/evicted")
void BPF_PROG(evicted, __u64 key, __s8 why)
{
	__s64 reason = why;

	bpf_map_update_elem(&gone, &key, &reason, BPF_ANY);
}

SEC("struct_ops/score")
__s16 BPF_PROG(score, struct request *request, __s32 now, _Bool hot)
{
	return hot ? -now : request->size;
}

SEC("struct_ops/busy")
__u64 BPF_PROG(busy, struct request *request)
{
	if (!request)
		return 7;
	return request->size;
}

SEC(".struct_ops")
struct cache_policy all = {
	.admit = (void *)admit,
	.evicted = (void *)evicted,
	.score = (void *)score,
	.busy = (void *)busy,
	.name = "all",
	.flags = 3,
};

SEC(".struct_ops.link")
struct cache_policy small = {
	.admit = (void *)admit,
	.name = "small",
};

char LICENSE[] SEC("license") = "MIT";
