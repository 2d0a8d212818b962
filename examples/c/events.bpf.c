/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tells the host of examples/c/events.c of each packet, through a ring buffer.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "event.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

__u32 number;

SEC("xdp")
int watch(struct xdp_md *context)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (event) {
		event->number = __sync_fetch_and_add(&number, 1) + 1;
		event->length = context->data_end - context->data;
		bpf_ringbuf_submit(event, 0);
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
