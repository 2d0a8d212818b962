/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Values that hold a lock, in an array and in a hash table: programs change two counters together under it, take them out
 * together, and write them by an update that takes the lock itself.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct pair {
	__u64 first;
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 second;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct pair);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, struct pair);
} table SEC(".maps");

static __always_inline int add(void *map)
{
	__u32 key = 1;
	struct pair *pair = bpf_map_lookup_elem(map, &key);

	if (!pair)
		return -1;
	bpf_spin_lock(&pair->lock);
	pair->first++;
	pair->second++;
	bpf_spin_unlock(&pair->lock);
	return 0;
}

/* Whether the counters of the element are different. */
static __always_inline int differ(void *map)
{
	__u32 key = 1;
	struct pair *pair = bpf_map_lookup_elem(map, &key);
	__u64 first, second;

	if (!pair)
		return -1;
	bpf_spin_lock(&pair->lock);
	first = pair->first;
	second = pair->second;
	bpf_spin_unlock(&pair->lock);
	return first != second;
}

/* Writes both counters. */
static __always_inline int set(void *map, __u64 *value, __u64 flags)
{
	struct pair pair = { .first = *value, .second = *value };
	__u32 key = 1;

	return bpf_map_update_elem(map, &key, &pair, flags);
}

SEC("raw/add_array")
int add_array(void)
{
	return add(&array);
}

SEC("raw/add_table")
int add_table(void)
{
	return add(&table);
}

SEC("raw/differ_array")
int differ_array(void)
{
	return differ(&array);
}

SEC("raw/differ_table")
int differ_table(void)
{
	return differ(&table);
}

SEC("raw/set_array")
int set_array(__u64 *value)
{
	return set(&array, value, BPF_F_LOCK);
}

SEC("raw/set_table")
int set_table(__u64 *value)
{
	return set(&table, value, BPF_F_LOCK);
}

SEC("raw/replace_table")
int replace_table(__u64 *value)
{
	return set(&table, value, BPF_ANY);
}

char _license[] SEC("license") = "Dual MIT/GPL";
