/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Sorts 32 numbers with the algorithm that compares neighbours: loads, stores and branches that cannot be foreseen.
 * Memory: 128 bytes in, 128 bytes of work space at 128.
 */
#include "bench.h"

#define COUNT 32

PROGRAM(bubble_sort)
{
	NEED(8 * COUNT);
	u32 *work = (u32 *)(mem + 4 * COUNT);
	u64 result = 0;

	for (int i = 0; i < COUNT; i++)
		work[i] = ((u32 *)mem)[i];
	for (int end = COUNT - 1; end > 0; end--) {
		for (int i = 0; i < end; i++) {
			u32 low = work[i], high = work[i + 1];

			if (low > high) {
				work[i] = high;
				work[i + 1] = low;
			}
		}
	}
	for (int i = 0; i < COUNT; i++)
		result = result * 31 + work[i];
	return result;
}
