/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A small machine that interprets 256 bytes of instructions of 14 kinds: a chain of compares for each, as a switch
 * becomes where there are no jump tables.
 * Memory: 16 bytes to start from, 256 bytes of instructions; read only.
 */
#include "bench.h"

PROGRAM(switches)
{
	NEED(272);
	u64 a = ((u64 *)mem)[0], b = ((u64 *)mem)[1];

	for (int i = 0; i < 256; i++) {
		switch (mem[16 + i] & 15) {
		case 0: a += b; break;
		case 1: a -= b; break;
		case 2: a ^= b; break;
		case 3: b += 0x1234567; break;
		case 4: b ^= a; break;
		case 5: b -= a; break;
		case 6: a = rotate64(a, 7); break;
		case 7: b = rotate64(b, 19); break;
		case 8: a *= 0x5851f42d4c957f2dULL; break;
		case 9: b *= 0x14057b7ef767814fULL; break;
		case 10: a = -a; break;
		case 11: b = ~b; break;
		case 12: a += 0x89abcdef; break;
		case 13: b -= 0x76543210; break;
		default: a ^= 0x5bd1e995; break;
		}
	}
	return a ^ b;
}
