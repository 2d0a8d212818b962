// SPDX-License-Identifier: MIT OR Apache-2.0
/* Everything that may be printed, from every kind of memory: one program for each. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct event {
	unsigned long long number;
	char name[16];
	unsigned char address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, unsigned);
	__type(value, struct event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

char out[128];

SEC("xdp")
int from_registers(struct xdp_md *ctx __attribute__((unused)))
{
	char text[8] = "stack";
	static const char constant[] = "constant";
	bpf_printk("%s %s %d", text, constant, -7);
	return 0;
}

SEC("xdp")
int from_an_array(struct xdp_md *ctx __attribute__((unused)))
{
	char text[8] = "stack";
	unsigned char address[4] = { 192, 0, 2, 1 };
	unsigned char six[16] = { 0x20, 1, 0xd, 0xb8, [15] = 1 };
	bpf_printk("%s %pI4 %pI6 %x %lld %c", text, address, six, 255, -1LL, 'c');
	return 0;
}

SEC("xdp")
int from_maps(struct xdp_md *ctx __attribute__((unused)))
{
	unsigned key = 1;
	struct event *event = bpf_map_lookup_elem(&events, &key);
	if (!event)
		return 1;
	struct event *record = bpf_ringbuf_reserve(&ring, sizeof *record, 0);
	if (!record)
		return 2;
	__builtin_memcpy(record, event, sizeof *record);
	bpf_printk("%s %s %pI4", event->name, record->name, record->address);
	bpf_ringbuf_discard(record, 0);
	return 0;
}

/* The paths differ in which string it is, and one register holds either. */
SEC("xdp")
int one_of_two(struct xdp_md *ctx)
{
	const char *text = "no";
	char first = 0;
	bpf_xdp_load_bytes(ctx, 0, &first, 1);
	if (first)
		text = "a longer text than the other";
	barrier_var(text);
	bpf_printk("%s", text);
	return 0;
}

/* Nothing ends the text but the memory that it is in; a spilled pointer is behind it. */
SEC("xdp")
int without_an_end(struct xdp_md *ctx)
{
	struct {
		char text[8];
		void *address;
	} both = { .text = { 'e', 'i', 'g', 'h', 't', '_', '_', '_' }, .address = ctx };
	barrier_var(ctx);
	asm volatile("" : : "r"(&both) : "memory");
	bpf_printk("%s", both.text);
	return both.address == ctx ? 0 : 1;
}

/* Addresses, by every conversion that shows a number, and a number as if it were one. */
SEC("xdp")
int addresses(struct xdp_md *ctx __attribute__((unused)))
{
	char text[8] = "hidden";
	bpf_printk("%llx %px %p", text, text, text);
	bpf_printk("%llu %pK %ps", text, text, text);
	return 0;
}

/* Numbers that somebody takes for addresses. */
SEC("xdp")
int numbers(struct xdp_md *ctx __attribute__((unused)))
{
	bpf_printk("[%s] [%pI4] [%s]", (void *)0x1000, (void *)0x2000, (void *)0);
	bpf_printk("%px %ps", (void *)0x1000, (void *)0x2000);
	return 0;
}

SEC("xdp")
int into_memory(struct xdp_md *ctx __attribute__((unused)))
{
	char text[8] = "stack";
	long length = BPF_SNPRINTF(out, sizeof out, "%s %5d|%-5d|%05d", text, 42, 42, 42);
	bpf_printk("%s: %ld", out, length);
	return 0;
}

SEC("xdp")
int wrong(struct xdp_md *ctx __attribute__((unused)))
{
	static const char format[] = "%f";
	return bpf_trace_printk(format, sizeof format, 1) == -22;
}
