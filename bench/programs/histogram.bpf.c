/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counts the bytes of a buffer in a table, clears the table first, and folds it afterwards.
 * Memory: 1024 bytes to count, then a table of 256 counters of 32 bits.
 */
#include "bench.h"

PROGRAM(histogram)
{
	NEED(2048);
	u32 *counts = (u32 *)(mem + 1024);
	u64 fold = *(u64 *)mem;

	for (int i = 0; i < 256; i++)
		counts[i] = 0;
	for (int i = 0; i < 1024; i++)
		counts[mem[i]]++;
	for (int i = 0; i < 256; i++)
		fold = fold * 33 + counts[i];
	return fold;
}
