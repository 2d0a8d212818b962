/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counts runs of equal values among 1024 bytes that take two values each, and adds up the lengths of some.
 * Memory: 1024 bytes, read only.
 */
#include "bench.h"

PROGRAM(run_lengths)
{
	NEED(1024);
	u64 runs = *(u64 *)mem, longest = *(u64 *)(mem + 8) & 1, length = *(u64 *)(mem + 16), before = *(u64 *)mem;

	length &= 1;
	before &= 0x80;
	for (int i = 0; i < 1024; i++) {
		u64 value = mem[i] & 0x80;
		/* All ones where the value is the one before. */
		u64 same = (value ^ before) - 1;

		OPAQUE(same);
		same = (u64)((long long)same >> 63);
		length = (length & same) + 1;
		runs -= ~same;
		if (((runs ^ length) & 0xff) == 3)
			longest += length;
		before = value;
		OPAQUE(longest);
	}
	return runs << 16 ^ longest;
}
