/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Every way in which code refers to code, maps and data; line numbers below are part of the tests.
 */
#include "bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
u32 VERSION SEC("version") = 1;

struct inner {
	__uint(type, HASH);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, u64);
} inner_a SEC(".maps"), inner_b SEC(".maps");

struct {
	__uint(type, ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, struct inner);
} outer SEC(".maps") = { .values = { [0] = &inner_a, [2] = &inner_b } };

int leaf(void *context);

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 3);
	__uint(key_size, 4);
	__array(values, int(void *));
} jumps SEC(".maps") = { .values = { [1] = (void *)&leaf } };

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 4096);
	__uint(pinning, 1);
} ring SEC(".maps");

static u64 counters[4];
static volatile int knob = 7;
const volatile int limit = 5;
u64 shared SEC(".data.shared") = 3;
int zeroed SEC(".bss.more");

static __noinline int static_in_text(u32 x)
{
	counters[x & 3]++;
	return knob + x;
}

__noinline int global_in_text(u32 x)
{
	return static_in_text(x * 3) + limit;
}

__hidden __noinline int hidden_in_text(u32 x)
{
	return static_in_text(x) ^ shared;
}

__weak __noinline int unused_in_text(u32 x)
{
	return x + 1;
}

static long callback(u32 i, void *data)
{
	*(u32 *)data += i;
	return 0;
}

static SEC("xdp") __noinline int static_in_xdp(u32 x)
{
	return x * 5 + counters[1];
}

SEC("xdp")
int first(u32 *context)
{
	u32 sum = 0;

	bpf_loop(4, callback, &sum, 0);
	bpf_trace_printk("sum %d\n", 8, sum);
	return global_in_text(context[0]) + hidden_in_text(sum) + static_in_xdp(sum);
}

SEC("xdp")
int leaf(void *context)
{
	bpf_tail_call(context, &jumps, 1);
	zeroed++;
	return static_in_xdp(3);
}

SEC("xdp/other")
int other(void *context)
{
	static volatile u32 calls;
	u32 key = 0;

	calls++;
	if (!bpf_map_lookup_elem(&outer, &key))
		return 1;
	return global_in_text(3);
}

SEC("mystery/thing")
int mystery(void *context)
{
	return 0;
}
