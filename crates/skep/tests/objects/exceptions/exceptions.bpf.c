// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that end by exceptions: from the program itself, from functions at any depth, with a callback and without.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define __exception_cb(name) __attribute__((btf_decl_tag("exception_callback:" #name)))

extern void bpf_throw(__u64 cookie) __ksym;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Records what the programs did, for the tests.
__u64 steps;
__u64 unwound;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 4);
} programs SEC(".maps");

static __noinline int doubled(__u64 number)
{
	return number * 2;
}

// The exception callback of most programs: records that it ran and calls another function.
__noinline int handle(__u64 cookie)
{
	unwound += 1;
	return 1000 + doubled(cookie);
}

__noinline int handle_otherwise(__u64 cookie)
{
	// Uses the whole stack, which the program that threw also used.
	volatile __u64 numbers[60];

	for (int i = 0; i < 60; i++)
		numbers[i] = cookie;
	return numbers[0] + numbers[59];
}

static __noinline int third(__u32 number)
{
	steps += 1;
	if (number & 1)
		bpf_throw(number);
	return number + 1;
}

static __noinline int second(__u32 number)
{
	int result = third(number);

	// Not reached by odd values.
	steps += 100;
	return result + third(number + 10);
}

__noinline int first(__u32 number)
{
	return second(number) + 5;
}

// Without a callback the cookie is the result.
SEC("tc")
int plain(struct __sk_buff *skb)
{
	__u32 length = skb->len;
	int result = first(length);

	steps += 10000;
	return result;
}

SEC("tc")
__exception_cb(handle)
int handled(struct __sk_buff *skb)
{
	__u32 length = skb->len;
	int result = first(length);

	steps += 10000;
	return result;
}

// Throws from its own frame, with a stack and with registers in use.
SEC("tc")
__exception_cb(handle_otherwise)
int at_once(struct __sk_buff *skb)
{
	volatile __u64 numbers[60];

	for (int i = 0; i < 60; i++)
		numbers[i] = i;
	if (skb->len & 1)
		bpf_throw(numbers[21]);
	return numbers[20];
}

static long round(__u64 index, __u64 *sum)
{
	*sum += index;
	return 0;
}

// Throws after a helper that called back.
SEC("tc")
__exception_cb(handle)
int after_rounds(struct __sk_buff *skb)
{
	__u64 sum = 0;

	bpf_loop(10, round, &sum, 0);
	if (skb->len & 1)
		bpf_throw(sum);
	return sum;
}

static __noinline int jump(struct __sk_buff *skb, __u32 index)
{
	// Not a constant: the compiler would propagate it into the caller.
	volatile int missing = 3;

	bpf_tail_call(skb, &programs, index);
	return missing;
}

// The target of a function's tail call throws: that ends only the target, whose result the function returns.
SEC("tc")
__exception_cb(handle_otherwise)
int jumps(struct __sk_buff *skb)
{
	int result = jump(skb, 0);

	steps += 1000000;
	if (result == 7)
		return first(1);
	return result;
}

SEC("xdp")
int drops(struct xdp_md *xdp)
{
	if (xdp->data_end - xdp->data > 20)
		bpf_throw(XDP_DROP);
	return XDP_PASS;
}
