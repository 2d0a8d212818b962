/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * MurmurHash3 (32 bits) of 1024 bytes: two multiplications and two rotations for each word.
 * Memory: 4 bytes of seed, 1024 bytes at 8; read only.
 */
#include "bench.h"

PROGRAM(murmur3)
{
	NEED(1032);
	u32 hash = *(u32 *)mem;

	for (int i = 0; i < 256; i++) {
		u32 word = ((u32 *)(mem + 8))[i];

		word = rotate32(word * 0xcc9e2d51, 15) * 0x1b873593;
		hash = rotate32(hash ^ word, 13) * 5 + 0xe6546b64;
	}
	hash ^= 1024;
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}
