/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A plug-in that was compiled with another header than that of host.bpf.c.
 *
 * clang: -Wno-unused-parameter
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct request;

struct cache_policy___narrow {
	__u32 (*admit)(struct request *request, __u32 room);
	void (*evicted)(__u64 key, __s8 why);
	__s16 (*score)(struct request *request, __s32 now, _Bool hot);
	__u64 (*busy)(struct request *request);
	char name[16];
	__u32 flags;
};

struct cache_policy___short {
	__u32 (*admit)(struct request *request, __u64 room);
};

struct cache_policy___renamed {
	__u32 (*admit)(struct request *request, __u64 room);
	void (*removed)(__u64 key, __s8 why);
	__s16 (*score)(struct request *request, __s32 now, _Bool hot);
	__u64 (*busy)(struct request *request);
	char name[16];
	__u32 flags;
};

struct cache_policy {
	__u32 (*admit)(struct request *request, __u64 room);
	void (*evicted)(__u64 key, __s8 why);
	__s16 (*score)(struct request *request, __s32 now, _Bool hot);
	__u64 (*busy)(struct request *request);
	char name[16];
	__u32 flags;
};

SEC("struct_ops/narrow")
__u32 BPF_PROG(narrow, struct request *request, __u32 room)
{
	return room;
}

SEC("struct_ops/shorter")
__u32 BPF_PROG(shorter, struct request *request, __u64 room)
{
	return room;
}

SEC("struct_ops/renamed")
__u32 BPF_PROG(renamed, struct request *request, __u64 room)
{
	return room;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

/* Another member of the array would take a number for an address. */
SEC("struct_ops/jumps")
__u32 BPF_PROG(jumps, struct request *request, __u64 room)
{
	bpf_tail_call(ctx, &next, 0);
	return 0;
}

SEC("struct_ops/useless")
void BPF_PROG(useless, __u64 key, __s8 why)
{
}

SEC(".struct_ops")
struct cache_policy___narrow table_narrow = { .admit = (void *)narrow };

SEC(".struct_ops")
struct cache_policy___short table_short = { .admit = (void *)shorter };

SEC(".struct_ops")
struct cache_policy___renamed table_renamed = { .admit = (void *)renamed };

SEC(".struct_ops")
struct cache_policy table_jumps = { .admit = (void *)jumps };

SEC(".struct_ops")
struct cache_policy table_useless = { .evicted = (void *)useless };

char LICENSE[] SEC("license") = "MIT";
