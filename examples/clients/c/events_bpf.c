/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Records of long packets in a ring buffer, and samples of short ones, with their first bytes, as perf events. A client
 * sets `least` before it loads this, and reads the variables while it runs.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct event {
	__u64 number;
	__u64 length;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} samples SEC(".maps");

/* The bytes of a packet in its sample. */
#define SAMPLED 14ull

const volatile __u64 least = 0;
__u64 seen = 0;
__u64 lost = 0;

SEC("xdp")
int watch(struct xdp_md *ctx)
{
	__u64 length = (__u64)ctx->data_end - (__u64)ctx->data;
	struct event *event, sample;

	seen++;
	if (length < least) {
		sample.number = seen;
		sample.length = length;
		bpf_perf_event_output(ctx, &samples, BPF_F_CURRENT_CPU | SAMPLED << 32, &sample, sizeof(sample));
		return XDP_PASS;
	}
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		lost++;
		return XDP_PASS;
	}
	event->number = seen;
	event->length = length;
	bpf_ringbuf_submit(event, 0);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
