/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * SipHash-2-4 (Aumasson and Bernstein, 2012) of 256 bytes: four 64-bit registers, additions and rotations.
 * Memory: 16 bytes of key, 256 bytes of message; read only.
 */
#include "bench.h"

#define ROUND \
	do { \
		v0 += v1, v1 = rotate64(v1, 13) ^ v0, v0 = rotate64(v0, 32); \
		v2 += v3, v3 = rotate64(v3, 16) ^ v2; \
		v0 += v3, v3 = rotate64(v3, 21) ^ v0; \
		v2 += v1, v1 = rotate64(v1, 17) ^ v2, v2 = rotate64(v2, 32); \
	} while (0)

PROGRAM(siphash)
{
	NEED(272);
	const u64 *key = (const u64 *)mem, *message = key + 2;
	u64 v0 = key[0] ^ 0x736f6d6570736575ULL, v1 = key[1] ^ 0x646f72616e646f6dULL;
	u64 v2 = key[0] ^ 0x6c7967656e657261ULL, v3 = key[1] ^ 0x7465646279746573ULL;

	for (int i = 0; i < 32; i++) {
		v3 ^= message[i];
		ROUND;
		ROUND;
		v0 ^= message[i];
	}
	/* The last word holds the length, 256 modulo 256, and no bytes. */
	ROUND;
	ROUND;
	v2 ^= 0xff;
	ROUND;
	ROUND;
	ROUND;
	ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}
