/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Adds up the primes among 48 odd numbers from 129 to 4095 by trial division: 32-bit remainders and an exit that
 * depends on them.
 * Memory: 8 bytes to start from and 192 bytes of numbers; read only.
 */
#include "bench.h"

PROGRAM(primes)
{
	NEED(200);
	const u32 *numbers = (const u32 *)(mem + 8);
	u64 sum = *(u64 *)mem;

	for (int i = 0; i < 48; i++) {
		u32 number = (numbers[i] & 0xfff) | 0x81; /* beyond every divisor */
		u32 divisor;

		for (divisor = 3; divisor < 64; divisor += 2)
			if (number % divisor == 0)
				break;
		if (divisor >= 64)
			sum += number;
	}
	return sum;
}
