/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A classifier that does one thing of each kind that tests can expect: it prints, gives records, marks, redirects, and
 * works with a queue, a table and random numbers.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum color { RED, GREEN = 5 };

struct event {
	__u64 time;
	__u32 len;
	enum color color;
	char name[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8);
	__type(value, __u32);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, struct event);
} table SEC(".maps");

/* So that the type is in the object. */
const struct event *unused __attribute__((unused));
__u32 random_number;
const volatile __u32 device = 3;

SEC("tc")
int effects(struct __sk_buff *skb)
{
	struct event event = { .time = bpf_ktime_get_ns(), .len = skb->len, .color = GREEN, .name = "green" };
	__u32 key = skb->len, sample = skb->mark;

	random_number = bpf_get_prandom_u32();
	bpf_printk("length %d", skb->len);
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	bpf_perf_event_output(skb, &samples, BPF_F_CURRENT_CPU, &sample, sizeof(sample));
	bpf_map_push_elem(&queue, &key, 0);
	bpf_map_update_elem(&table, &key, &event, BPF_ANY);
	skb->mark += 1;
	return bpf_redirect(device, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
