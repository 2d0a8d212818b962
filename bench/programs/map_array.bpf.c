/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 64 look-ups in an array map of 256 elements, each element read and written.
 * Memory: 8 bytes to start from, 64 bytes of indices; read only. Helpers: 1 (look-up). BPF only.
 */
#include "bench.h"

struct {
	int (*type)[2]; /* array */
	int (*max_entries)[256];
	u32 *key;
	u64 *value;
} numbers __attribute__((section(".maps"), used));

static void *(*const lookup)(void *map, const void *key) = (void *)1;

PROGRAM(map_array)
{
	NEED(72);
	u64 sum = *(u64 *)mem;

	for (int i = 0; i < 64; i++) {
		u32 key = mem[8 + i];
		u64 *number = lookup(&numbers, &key);

		if (!number)
			return 0;
		*number = sum;
		sum = sum * 31 + key;
	}
	return sum;
}
