/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 64 rounds through functions that are really called, three deep, with arguments, results and a value that lives
 * across each call: the price of frames.
 * Memory: 16 bytes, read only.
 */
#include "bench.h"

NOINLINE u64 leaf(u64 a, u64 b)
{
	OPAQUE(a);
	return (a ^ b >> 3) * 0x2545f4914f6cdd1dULL;
}

NOINLINE u64 middle(u64 a, u64 b, u64 c)
{
	u64 left = leaf(a, c);

	OPAQUE(left);
	return left + leaf(b, left ^ c);
}

NOINLINE u64 outer(u64 a, u64 b, u64 c, u64 d)
{
	u64 kept = rotate64(a, 21);

	OPAQUE(kept);
	return middle(a, b, d) ^ middle(c, kept, d) ^ kept;
}

PROGRAM(calls)
{
	NEED(16);
	u64 a = ((u64 *)mem)[0], b = ((u64 *)mem)[1];

	for (u64 i = 0; i < 64; i++) {
		u64 next = outer(a, b, i, a + b);

		a = b;
		b = next;
	}
	return b;
}
