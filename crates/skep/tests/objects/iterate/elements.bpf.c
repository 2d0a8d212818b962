/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Programs of iterators over the elements of maps, compiled with the types of skep's own. */
#include "shown.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

/* Each element and the end. */
SEC("iter/bpf_map_elem")
int dump(struct bpf_iter__bpf_map_elem *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	__u32 *key = ctx->key;
	__u64 *value = ctx->value;

	if (!key || !value)
		BPF_SEQ_PRINTF(seq, "%llu in %s\n", ctx->meta->seq_num, ctx->map->name);
	else
		BPF_SEQ_PRINTF(seq, "%llu: %u = %llu\n", ctx->meta->seq_num, *key, *value);
	return 0;
}

/* Both paths make the same call, with two values and with none. */
SEC("iter/bpf_map_elem")
int one_call(struct bpf_iter__bpf_map_elem *ctx)
{
	static const char end[] = "end\n", element[] = "%u = %llu\n";
	const char *format = end;
	__u64 values[2] = {};
	__u32 *key = ctx->key, size = sizeof(end), bytes = 0;
	__u64 *value = ctx->value;

	if (key && value) {
		values[0] = *key;
		values[1] = *value;
		format = element;
		size = sizeof(element);
		bytes = sizeof(values);
	}
	bpf_seq_printf(ctx->meta->seq, format, size, values, bytes);
	return 0;
}

/* Values are changed in place. */
SEC("iter/bpf_map_elem")
int twice(struct bpf_iter__bpf_map_elem *ctx)
{
	__u64 *value = ctx->value;

	if (value)
		*value *= 2;
	return 0;
}

/* The sum of the values of all CPUs of the machine that the host says. */
const volatile __u32 cpus = 1;

SEC("iter/bpf_map_elem")
int over_cpus(struct bpf_iter__bpf_map_elem *ctx)
{
	__u64 *value = ctx->value, sum = 0;

	if (!ctx->key || !value)
		return 0;
	for (__u32 cpu = 0; cpu < 4 && cpu < cpus; cpu++)
		sum += value[cpu];
	bpf_seq_write(ctx->meta->seq, &sum, sizeof(sum));
	return 0;
}

/* The element that is shown is replaced and deleted; what is shown stays what it was. */
SEC("iter/bpf_map_elem")
int without_ground(struct bpf_iter__bpf_map_elem *ctx)
{
	__u32 *key = ctx->key, copy;
	__u64 *value = ctx->value, other = 7777;

	if (!key || !value)
		return 0;
	copy = *key;
	bpf_map_update_elem(&table, &copy, &other, BPF_ANY);
	bpf_map_delete_elem(&table, &copy);
	for (__u32 more = 1000; more < 1064; more++)
		bpf_map_update_elem(&table, &more, &other, BPF_ANY);
	bpf_seq_write(ctx->meta->seq, key, sizeof(*key));
	bpf_seq_write(ctx->meta->seq, value, sizeof(*value));
	for (__u32 more = 1000; more < 1064; more++)
		bpf_map_delete_elem(&table, &more);
	return 0;
}

/* As much as anybody may write about one object, or one byte more. */
const volatile __u32 excess = 0;

SEC("iter/bpf_map_elem")
int long_record(struct bpf_iter__bpf_map_elem *ctx)
{
	static const char line[128] = "";

	if (!ctx->key)
		return 0;
	for (int i = 0; i < 256; i++)
		bpf_seq_write(ctx->meta->seq, line, sizeof(line));
	if (excess)
		bpf_seq_write(ctx->meta->seq, line, 1);
	return 0;
}

/* Asks for the same object until it was shown so often. */
const volatile __u32 wanted = 3;
__u32 times;

SEC("iter/bpf_map_elem")
int again(struct bpf_iter__bpf_map_elem *ctx)
{
	if (!ctx->key)
		return 0;
	BPF_SEQ_PRINTF(ctx->meta->seq, "%llu after %u\n", ctx->meta->seq_num, times);
	return ++times % wanted != 0;
}
