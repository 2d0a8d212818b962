/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The logarithm to base two of 128 numbers, by smearing the highest bit and counting: shifts, masks and 64-bit
 * constants.
 * Memory: 1024 bytes, read only.
 */
#include "bench.h"

PROGRAM(log2)
{
	NEED(1024);
	const u64 *numbers = (const u64 *)mem;
	u64 sum = numbers[0];

	for (int i = 0; i < 128; i++) {
		u64 bits = numbers[i] >> (i & 63);

		bits |= bits >> 1;
		bits |= bits >> 2;
		bits |= bits >> 4;
		bits |= bits >> 8;
		bits |= bits >> 16;
		bits |= bits >> 32;
		/* Keeps the compiler from using an instruction that BPF has not. */
		OPAQUE(bits);
		bits -= bits >> 1 & 0x5555555555555555ULL;
		bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
		bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
		sum += (bits * 0x0101010101010101ULL >> 56) - 1;
	}
	return sum;
}
