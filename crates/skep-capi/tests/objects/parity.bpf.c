/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a host in C uses: maps of many kinds, tail calls, helpers of the host, variables, a type of the host's own.
 *
 * clang: -Wno-unused-parameter
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Helpers of the host. */
static long (*const host_sum)(const void *bytes, __u64 size) = (void *) 1000;
static long (*const host_fill)(void *eight) = (void *) 1001;
static long (*const host_each)(long (*each)(__u64 value, void *context), void *context, __u32 count) = (void *) 1002;
static __u8 (*const host_byte)(void *context, __u32 offset) = (void *) 1003;
static long (*const host_count)(void *map, __u32 key) = (void *) 1004;
static long (*const host_state)(__u64 add) = (void *) 1005;
static long (*const host_or_null)(void *bytes, __u64 size) = (void *) 1006;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 8);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u32);
	__uint(max_entries, 2);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__type(value, __u32);
	__uint(max_entries, 64);
} filter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, 4096);
} commands SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} jumps SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 2);
	__array(values, struct inner);
} by_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__type(key, __u64);
	__uint(max_entries, 4);
	__array(values, struct inner);
} by_name SEC(".maps");

const volatile __u32 scale = 1;
__u64 total;

SEC("xdp")
int count(struct xdp_md *context)
{
	__u32 key = 0;
	__u64 *hit = bpf_map_lookup_elem(&hits, &key);

	if (hit)
		*hit += 1;
	total += scale;
	bpf_printk("counted %d", context->ingress_ifindex);
	return scale;
}

SEC("xdp")
int jump(struct xdp_md *context)
{
	bpf_tail_call(context, &jumps, 1);
	return XDP_ABORTED;
}

SEC("xdp")
int nested(struct xdp_md *context)
{
	__u64 name = 7, *value;
	__u32 key = 1, zero = 0;
	void *inner = bpf_map_lookup_elem(&by_index, &key);
	__u32 sum = 0;

	if (inner && (value = bpf_map_lookup_elem(inner, &zero)))
		sum += *value;
	inner = bpf_map_lookup_elem(&by_name, &name);
	if (inner && (value = bpf_map_lookup_elem(inner, &zero)))
		sum += *value;
	return sum;
}

static long drained(struct bpf_dynptr *record, void *context)
{
	__u32 value;

	if (!bpf_dynptr_read(&value, sizeof(value), record, 0, 0))
		*(__u64 *)context += value;
	return 0;
}

SEC("xdp")
int drain(struct xdp_md *context)
{
	__u64 sum = 0;

	bpf_user_ringbuf_drain(&commands, drained, &sum, 0);
	return sum;
}

static long is_wanted(__u64 value, void *context)
{
	*(__u64 *)context += value;
	return value == 3;
}

SEC("xdp")
int call(struct xdp_md *context)
{
	__u8 bytes[4] = { 1, 2, 3, 4 };
	__u64 eight = 0, seen = 0;

	if (host_sum(bytes, sizeof(bytes)) != 10)
		return 101;
	if (host_fill(&eight) || eight != 0x0807060504030201)
		return 102;
	if (host_each(is_wanted, &seen, 10) != 3 || seen != 0 + 1 + 2 + 3)
		return 103;
	if (host_byte(context, 2) != 0xcc || host_byte(context, 1 << 20) != 0)
		return 104;
	if (host_count(&table, 5) != 55 || host_count(&table, 6) != -2)
		return 105;
	if (host_state(7) != 7 || host_state(8) != 15)
		return 106;
	if (host_or_null(0, 0) != -22 || host_or_null(bytes, sizeof(bytes)) != -34 || bytes[3] != 9)
		return 107;
	return 100;
}

static long step(__u64 index, void *context)
{
	*(__u64 *)context += index;
	return 0;
}

SEC("xdp")
int spin(struct xdp_md *context)
{
	__u64 sum = 0;

	bpf_loop(10000, step, &sum, 0);
	return sum;
}

SEC("cgroup/dev")
int only_disks(struct bpf_cgroup_dev_ctx *context)
{
	return context->major == 8;
}

SEC("xdp")
int redirect(struct xdp_md *context)
{
	return bpf_redirect(context->ingress_ifindex + 1, 0);
}

/* A type of the host's own, as skep_type_header declares it. */
struct peer {
	__u32 score;
	__u16 port;
} __attribute__((preserve_access_index));

struct job {
	__u32 number;
	__s16 priority;
	__u8 tag[4];
	const __u8 *name;
	const __u8 *name_end;
	__u8 (*scratch)[8];
	struct peer *peer;
} __attribute__((preserve_access_index));

extern __u32 job_note(struct job *job, __u32 value) __ksym;

SEC("job")
int schedule(struct job *job)
{
	const __u8 *name = job->name;
	__u8 (*scratch)[8] = job->scratch;
	struct peer *peer = job->peer;

	if (scratch)
		(*scratch)[7] = job->tag[0];
	if (peer)
		peer->score = peer->port;
	if (name + 1 > job->name_end)
		return 0;
	job->priority = -(__s16)job->number;
	return job_note(job, name[0]) == 77 ? 1 : 2;
}

char _license[] SEC("license") = "GPL";
