/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * clang: -mcpu=v4
 *
 * What compilers do to bounds: they compare in 32 bits, copy after the comparison, mask, shift up and down, select
 * without branches, spill. The inline assembly pins down the shapes that optimisers choose as they like.
 */
#include "verdicts.h"

#include <linux/pkt_cls.h>

struct cell {
	__u8 bytes[64];
};

MAP(ARRAY, 16, __u32, struct cell) cells SEC(".maps");

static __always_inline __u8 *cell_of(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;

	return bpf_map_lookup_elem(&cells, &key);
}

/* Compared in 32 bits, used in 64. */
SEC("tc")
int compared_in_half(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);

	if (!cell)
		return 0;
	asm volatile("r1 = *(u32 *)(%[skb] + 0)\n"
		     "if w1 > 63 goto +2\n"
		     "%[cell] += r1\n"
		     "*(u8 *)(%[cell] + 0) = 1\n"
		     : [cell] "+r"(cell) : [skb] "r"(skb) : "memory", "r1");
	return 0;
}

/* The copy was made before the comparison, and is used after it. */
SEC("tc")
int copy_from_before(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);

	if (!cell)
		return 0;
	asm volatile("r1 = *(u32 *)(%[skb] + 0)\n"
		     "r2 = r1\n"
		     "if r1 > 63 goto +2\n"
		     "%[cell] += r2\n"
		     "*(u8 *)(%[cell] + 0) = 1\n"
		     : [cell] "+r"(cell) : [skb] "r"(skb) : "memory", "r1", "r2");
	return 0;
}

/* Spilled before, filled after. */
SEC("tc")
int spilled_from_before(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);

	if (!cell)
		return 0;
	asm volatile("r1 = *(u32 *)(%[skb] + 0)\n"
		     "*(u64 *)(r10 - 32) = r1\n"
		     "if r1 > 63 goto +3\n"
		     "r2 = *(u64 *)(r10 - 32)\n"
		     "%[cell] += r2\n"
		     "*(u8 *)(%[cell] + 0) = 1\n"
		     : [cell] "+r"(cell) : [skb] "r"(skb) : "memory", "r1", "r2");
	return 0;
}

/* A sign that was extended by shifts, and one by an instruction. */
SEC("tc")
int signs(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);
	__s64 wide = (__s32)skb->hash;
	__s8 narrow = skb->mark;

	if (!cell)
		return 0;
	barrier_var(wide);
	if (wide < 0 || wide > 31)
		wide = 31;
	cell[wide] = narrow / 3;
	if (narrow >= 0 && narrow < 64)
		cell[(__s64)narrow] = narrow % 5;
	return 0;
}

/* The smaller of two by arithmetic alone. */
SEC("tc")
int without_a_branch(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);
	__u32 index = skb->len;

	if (!cell)
		return 0;
	index = (index | -(index >> 6 != 0)) & 63;
	barrier_var(index);
	cell[index & 63] = 1;
	return 0;
}

/* A size that grows in steps, and a loop over what is left of it. */
SEC("tc")
int in_blocks(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb), sum = 0;
	__u32 at = 0, size = skb->len;

	if (!cell || size > 64)
		return 0;
	for (; at + 8 <= size; at += 8)
		sum += (__u8)*(__u64 *)&cell[at];
	for (; at < size; at++)
		sum ^= cell[at];
	return sum & TC_ACT_SHOT;
}

/* Insertion sort in the stack, as long as it takes. */
SEC("tc")
int sorted(struct __sk_buff *skb)
{
	__u32 values[6] = { skb->len, skb->mark, skb->hash, skb->ifindex, skb->priority, skb->protocol };

	for (int i = 1; i < 6; i++) {
		__u32 value = values[i];
		int j = i;

		for (; j > 0 && values[j - 1] > value; j--)
			values[j] = values[j - 1];
		values[j] = value;
	}
	return values[0] <= values[5] ? TC_ACT_OK : TC_ACT_SHOT;
}

/* A state machine, byte by byte, with a table of its steps. */
static const __u8 steps[4][4] = { { 0, 1, 2, 3 }, { 1, 2, 3, 0 }, { 2, 2, 0, 1 }, { 3, 0, 1, 3 } };

SEC("tc")
int automaton(struct __sk_buff *skb)
{
	__u8 *at = BEGIN(skb), *end = END(skb);
	__u32 state = 0;

	for (int i = 0; i < 64; i++) {
		if (at + 1 > end)
			break;
		state = steps[state & 3][*at++ & 3];
	}
	return state == 3 ? TC_ACT_SHOT : TC_ACT_OK;
}

/* A word on the stack, one half of it from here and one from there. */
SEC("tc")
int halves(struct __sk_buff *skb)
{
	union {
		__u64 word;
		__u32 half[2];
		__u8 bytes[8];
	} u;

	u.half[0] = skb->len & 0x3f;
	u.half[1] = 0;
	barrier();
	__u8 *cell = cell_of(skb);
	if (!cell)
		return 0;
	cell[u.word & 63] = u.bytes[1];
	return 0;
}

/* Nobody wrote the register. */
SEC("tc")
__attribute__((naked)) int bad_register_from_nowhere(struct __sk_buff *skb __attribute__((unused)))
{
	asm volatile("r0 = r7\n"
		     "exit\n");
}

/* A call leaves nothing in the registers of its arguments. */
SEC("tc")
__attribute__((naked)) int bad_register_after_a_call(struct __sk_buff *skb __attribute__((unused)))
{
	asm volatile("call 5\n"
		     "r0 = r1\n"
		     "exit\n");
}

/* One of the two ways writes it. */
SEC("tc")
__attribute__((naked)) int bad_register_on_one_way(struct __sk_buff *skb __attribute__((unused)))
{
	asm volatile("r2 = *(u32 *)(r1 + 0)\n"
		     "if r2 > 100 goto +1\n"
		     "r3 = 1\n"
		     "r0 = r3\n"
		     "exit\n");
}

/* There is no result. */
SEC("tc")
__attribute__((naked)) int bad_no_result(struct __sk_buff *skb __attribute__((unused)))
{
	asm volatile("r2 = *(u32 *)(r1 + 0)\n"
		     "exit\n");
}

/* Compared as a signed number from one side only. */
SEC("tc")
int bad_signed_from_one_side(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);
	__s64 index = (__s32)skb->len;

	if (!cell)
		return 0;
	barrier_var(index);
	if (index < 64)
		cell[index] = 1;
	return 0;
}

/* The upper half was not compared. */
SEC("tc")
int bad_upper_half(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);

	if (!cell)
		return 0;
	asm volatile("r1 = *(u32 *)(%[skb] + 0)\n"
		     "r1 <<= 8\n"
		     "if w1 > 63 goto +2\n"
		     "%[cell] += r1\n"
		     "*(u8 *)(%[cell] + 0) = 1\n"
		     : [cell] "+r"(cell) : [skb] "r"(skb) : "memory", "r1");
	return 0;
}

/* Pointers have no halves. */
SEC("tc")
int bad_half_a_pointer(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);

	if (!cell)
		return 0;
	asm volatile("r2 = %[cell]\n"
		     "w2 += 4\n"
		     "*(u8 *)(r2 + 0) = 1\n" : : [cell] "r"(cell) : "memory", "r2");
	return 0;
}

/* A product is more than a pointer may be moved by. */
SEC("tc")
int bad_product(struct __sk_buff *skb)
{
	__u8 *cell = cell_of(skb);
	__u64 index = (__u64)skb->len * skb->mark;

	if (!cell)
		return 0;
	return *(volatile __u8 *)(cell + index);
}

/* The stack is below, not above. */
SEC("tc")
int bad_above_the_stack(struct __sk_buff *skb)
{
	asm volatile("*(u64 *)(r10 + 8) = %[skb]\n" : : [skb] "r"(skb->len) : "memory");
	return 0;
}
