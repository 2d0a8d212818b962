/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 128 calls of the cheapest helper there is, with four values alive across each. The native version calls a function
 * that does as little. The number of the CPU is shifted away, so that the result does not depend on it.
 * Memory: 16 bytes, read only. Helpers: 8 (the number of this CPU).
 */
#include "bench.h"

#ifdef __bpf__
static u32 (*const cpu)(void) = (void *)8;
#else
NOINLINE u32 cpu(void)
{
	u32 number = 0;

	OPAQUE(number);
	return number;
}
#endif

PROGRAM(helper_calls)
{
	NEED(16);
	u64 a = ((u64 *)mem)[0], b = ((u64 *)mem)[1];

	for (int i = 0; i < 128; i++) {
		a += b ^ cpu() >> 31;
		b = rotate64(b, 9) + a;
	}
	return a ^ b;
}
