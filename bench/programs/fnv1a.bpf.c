/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * FNV-1a of 1024 bytes: an exclusive or and a multiplication for each byte, all dependent.
 * Memory: 8 bytes to start from, 1024 bytes; read only.
 */
#include "bench.h"

PROGRAM(fnv1a)
{
	NEED(1032);
	u64 hash = *(u64 *)mem;

	for (int i = 0; i < 1024; i++) {
		hash ^= mem[8 + i];
		hash *= 0x100000001b3;
	}
	return hash;
}
