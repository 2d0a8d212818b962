/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 64 searches in a sorted table of 512 numbers of 32 bits, nine steps each, without branches: every step's load
 * depends on the one before.
 * Memory: 2048 bytes of sorted table, 256 bytes of 64 keys; read only.
 */
#include "bench.h"

PROGRAM(binary_search)
{
	NEED(2304);
	const u32 *table = (const u32 *)mem, *keys = (const u32 *)(mem + 2048);
	u64 sum = 0;

	for (int i = 0; i < 64; i++) {
		u64 key = keys[i], at = 0;

		for (u64 step = 256; step; step /= 2) {
			/* All ones when the entry is not beyond the key. */
			u64 behind = (u64)table[at + step] - key - 1;

			OPAQUE(behind);
			at += step & (u64)((long long)behind >> 63);
		}
		sum = sum * 31 + table[at];
	}
	return sum;
}
