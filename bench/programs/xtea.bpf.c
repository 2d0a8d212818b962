/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * XTEA over sixteen blocks of 8 bytes: thirty-two rounds of shifts and additions, the key chosen by bits of a sum.
 * Memory: 16 bytes of key, 128 bytes in, 128 bytes out at 144.
 */
#include "bench.h"

PROGRAM(xtea)
{
	NEED(272);
	const u32 *key = (const u32 *)mem;
	u64 fold = *(u64 *)(mem + 16);

	for (int block = 0; block < 16; block++) {
		const u32 *in = (const u32 *)(mem + 16 + block * 8);
		u32 *out = (u32 *)(mem + 144 + block * 8);
		u32 v0 = in[0], v1 = in[1], sum = 0;

		for (int i = 0; i < 32; i++) {
			v0 += ((v1 << 4 ^ v1 >> 5) + v1) ^ (sum + key[sum & 3]);
			sum += 0x9e3779b9;
			v1 += ((v0 << 4 ^ v0 >> 5) + v0) ^ (sum + key[sum >> 11 & 3]);
		}
		out[0] = v0;
		out[1] = v1;
		fold = fold * 31 + ((u64)v1 << 32 | v0);
	}
	return fold;
}
