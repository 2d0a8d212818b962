/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Compares eight pairs of strings of at most 63 bytes, byte by byte, most of them equal to the end.
 * Memory: 8 bytes to start from, then 16 slots of 64 bytes, each with a string that ends in a zero; read only.
 */
#include "bench.h"

PROGRAM(string_compare)
{
	NEED(8 + 16 * 64);
	u64 result = *(u64 *)mem;

	for (int pair = 0; pair < 8; pair++) {
		const u8 *left = mem + 8 + pair * 128, *right = left + 64;
		u64 difference = 0;

		for (int i = 0; i < 64; i++) {
			difference = (u64)left[i] - right[i];
			if (difference || !left[i])
				break;
		}
		result = result * 31 + difference;
	}
	return result;
}
