/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * XXH64 (Collet, version 0.1.1 of its specification) of 512 bytes with seed 0: four lanes of 64-bit multiplications.
 * Memory: 512 bytes, read only.
 */
#include "bench.h"

#define P1 0x9e3779b185ebca87ULL
#define P2 0xc2b2ae3d27d4eb4fULL
#define P3 0x165667b19e3779f9ULL
#define P4 0x85ebca77c2b2ae63ULL

INLINE u64 lane(u64 accumulator, u64 input)
{
	return rotate64(accumulator + input * P2, 31) * P1;
}

INLINE u64 merge(u64 hash, u64 accumulator)
{
	return (hash ^ lane(0, accumulator)) * P1 + P4;
}

PROGRAM(xxh64)
{
	NEED(512);
	const u64 *input = (const u64 *)mem;
	u64 a = P1 + P2, b = P2, c = 0, d = -P1, hash;

	for (int i = 0; i < 64; i += 4) {
		a = lane(a, input[i]);
		b = lane(b, input[i + 1]);
		c = lane(c, input[i + 2]);
		d = lane(d, input[i + 3]);
	}
	hash = rotate64(a, 1) + rotate64(b, 7) + rotate64(c, 12) + rotate64(d, 18);
	hash = merge(merge(merge(merge(hash, a), b), c), d) + 512;
	hash = (hash ^ hash >> 33) * P2;
	hash = (hash ^ hash >> 29) * P3;
	return hash ^ hash >> 32;
}
