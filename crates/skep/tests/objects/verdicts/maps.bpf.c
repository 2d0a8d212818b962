/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * clang: -mcpu=v4
 *
 * Maps of many kinds: inside of others, per CPU, queues, filters, variables; and dynamic pointers.
 */
#include "verdicts.h"

#include <linux/pkt_cls.h>

struct entry {
	__u64 hits;
	__u32 size;
	__u8 bytes[20];
};

struct inner_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct entry);
} tenant_0 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 8);
	__type(key, __u32);
	__array(values, struct inner_map);
} tenants SEC(".maps") = { .values = { &tenant_0 } };

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 32);
	__type(value, __u64);
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 32);
	__type(value, __u64);
} unused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 1000);
	__type(value, __u32);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

MAP(PERCPU_HASH, 128, __u32, struct entry) per_cpu SEC(".maps");
MAP(LRU_PERCPU_HASH, 128, __u32, __u64) recent SEC(".maps");

const volatile __u32 limit = 10;
const char greeting[] = "hello";
__u64 total;
__u32 table[16];
static __s16 deltas[8] = { -1, 1, -2, 2, -3, 3, -4, 4 };

SEC("tc")
int of_a_tenant(struct __sk_buff *skb)
{
	__u32 tenant = skb->mark & 7, key = skb->hash;
	void *map = bpf_map_lookup_elem(&tenants, &tenant);
	struct entry fresh = { .hits = 1 }, *entry;

	if (!map)
		return TC_ACT_OK;
	entry = bpf_map_lookup_elem(map, &key);
	if (!entry)
		return bpf_map_update_elem(map, &key, &fresh, BPF_ANY) ? TC_ACT_SHOT : TC_ACT_OK;
	if (__sync_fetch_and_add(&entry->hits, 1) > limit)
		bpf_map_delete_elem(map, &key);
	return TC_ACT_OK;
}

SEC("tc")
int queued(struct __sk_buff *skb)
{
	__u64 number;

	if (bpf_map_pop_elem(&unused, &number) && bpf_map_peek_elem(&waiting, &number))
		number = skb->len;
	if (bpf_map_push_elem(&waiting, &number, BPF_EXIST))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

SEC("tc")
int seen_before(struct __sk_buff *skb)
{
	__u32 hash = skb->hash;

	if (bpf_map_peek_elem(&seen, &hash) == 0)
		return TC_ACT_OK;
	bpf_map_push_elem(&seen, &hash, 0);
	return TC_ACT_SHOT;
}

SEC("tc")
int variables(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex & 15;
	__s32 delta = deltas[index >> 1];

	table[index] += delta;
	total += (__s64)delta / (__s32)(skb->len - 3);
	__sync_fetch_and_or(&table[index ^ 1], 1u << index);
	if (__sync_val_compare_and_swap(&total, 5, 6) == 5)
		return greeting[index % sizeof(greeting)] == 'h';
	return __builtin_bswap32(skb->hash) % 3;
}

SEC("tc")
int on_all_cpus(struct __sk_buff *skb)
{
	__u32 key = skb->hash;
	struct entry *entry;
	__u64 sum = 0;

	for (__u32 cpu = 0; cpu < 4; cpu++) {
		entry = bpf_map_lookup_percpu_elem(&per_cpu, &key, cpu);
		if (entry)
			sum += entry->hits;
	}
	if (sum >= limit)
		bpf_map_delete_elem(&recent, &key);
	return TC_ACT_OK;
}

SEC("tc")
int record_of_any_size(struct __sk_buff *skb)
{
	__u32 size = skb->len & 0xff;
	struct bpf_dynptr record;
	__u8 *first;

	if (bpf_ringbuf_reserve_dynptr(&records, size + 16, 0, &record)) {
		bpf_ringbuf_discard_dynptr(&record, 0);
		return TC_ACT_OK;
	}
	first = bpf_dynptr_data(&record, 0, 8);
	if (first)
		*(__u64 *)first = bpf_ktime_get_ns();
	bpf_dynptr_write(&record, 8, &size, sizeof(size), 0);
	bpf_ringbuf_submit_dynptr(&record, 0);
	return TC_ACT_OK;
}

/* The map inside may be missing. */
SEC("tc")
int bad_tenant_unchecked(struct __sk_buff *skb)
{
	__u32 tenant = skb->mark, key = 0;
	void *map = bpf_map_lookup_elem(&tenants, &tenant);

	return bpf_map_lookup_elem(map, &key) ? TC_ACT_OK : TC_ACT_SHOT;
}

/* A queue has no keys. */
SEC("tc")
int bad_look_up_in_a_queue(struct __sk_buff *skb)
{
	__u32 key = skb->mark;

	return bpf_map_lookup_elem(&waiting, &key) ? TC_ACT_OK : TC_ACT_SHOT;
}

/* A signed remainder may be negative. */
SEC("tc")
int bad_index_below_zero(struct __sk_buff *skb)
{
	__s32 index = (__s32)skb->hash % 16;

	barrier_var(index);
	return table[index] & TC_ACT_SHOT;
}

/* One entry too far, but the map holds another variable there: for verifiers it is all one. */
SEC("tc")
int index_of_an_array(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex;

	if (index > 16)
		return TC_ACT_OK;
	barrier_var(index);
	return table[index] & TC_ACT_SHOT;
}

/* An atomic operation on a pair of numbers, not at its start. */
SEC("tc")
int bad_atomic_address(struct __sk_buff *skb)
{
	__u32 key = skb->hash;
	struct entry *entry = bpf_map_lookup_elem(&per_cpu, &key);

	__u64 *inside;

	if (!entry)
		return TC_ACT_OK;
	inside = (void *)&entry->bytes[3];
	barrier_var(inside);
	__sync_fetch_and_add(inside, 1);
	return TC_ACT_OK;
}

/* Whether or not it could be reserved, it is to be given back. */
SEC("tc")
int bad_record_not_given_back(struct __sk_buff *skb)
{
	struct bpf_dynptr record;

	if (bpf_ringbuf_reserve_dynptr(&records, skb->len & 0xff, 0, &record))
		return TC_ACT_OK;
	bpf_ringbuf_submit_dynptr(&record, 0);
	return TC_ACT_OK;
}

/* The bytes that a dynamic pointer shows may be missing. */
SEC("tc")
int bad_bytes_unchecked(struct __sk_buff *skb)
{
	struct bpf_dynptr record;
	__u64 *first;

	bpf_ringbuf_reserve_dynptr(&records, 64, 0, &record);
	first = bpf_dynptr_data(&record, 0, 8);
	*first = skb->len;
	bpf_ringbuf_submit_dynptr(&record, 0);
	return TC_ACT_OK;
}

/* After it was submitted, the bytes belong to the reader. */
SEC("tc")
int bad_bytes_after_submission(struct __sk_buff *skb)
{
	struct bpf_dynptr record;
	__u64 *first;

	bpf_ringbuf_reserve_dynptr(&records, 64, 0, &record);
	first = bpf_dynptr_data(&record, 0, 8);
	if (!first) {
		bpf_ringbuf_discard_dynptr(&record, 0);
		return TC_ACT_OK;
	}
	bpf_ringbuf_submit_dynptr(&record, 0);
	*first = skb->len;
	return TC_ACT_OK;
}
