/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A timer that prints: the host's function for messages runs during a step of the world's clock.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

static int tick(void *map, __u32 *key, struct clock *clock)
{
	(void)map, (void)key, (void)clock;
	bpf_printk("tick");
	return 0;
}

SEC("xdp")
int winds(struct xdp_md *ctx __attribute__((unused)))
{
	__u32 key = 0;
	struct clock *clock = bpf_map_lookup_elem(&clocks, &key);

	if (!clock || bpf_timer_init(&clock->timer, &clocks, 1 /* CLOCK_MONOTONIC */))
		return XDP_ABORTED;
	bpf_timer_set_callback(&clock->timer, tick);
	bpf_timer_start(&clock->timer, 1000, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
