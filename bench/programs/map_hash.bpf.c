/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 32 updates and 32 look-ups in a hash map of 8-byte keys.
 * Memory: 8 bytes to start from, 256 bytes of keys at 8; read only. Helpers: 1 (look-up), 2 (update). BPF only.
 */
#include "bench.h"

struct {
	int (*type)[1]; /* hash */
	int (*max_entries)[1024];
	u64 *key;
	u64 *value;
} numbers __attribute__((section(".maps"), used));

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;

PROGRAM(map_hash)
{
	NEED(264);
	u64 sum = *(u64 *)mem;

	for (int i = 0; i < 32; i++) {
		u64 key = ((u64 *)mem)[1 + i], value = rotate64(key, 17) + sum;

		if (update(&numbers, &key, &value, 0))
			return 0;
	}
	for (int i = 0; i < 32; i++) {
		u64 key = ((u64 *)mem)[1 + i];
		u64 *value = lookup(&numbers, &key);

		if (!value)
			return 0;
		sum = sum * 31 + *value;
	}
	return sum;
}
