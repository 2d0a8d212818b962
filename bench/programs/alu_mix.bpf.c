/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 256 rounds of dependent arithmetic in four registers: add, subtract, multiply, xor, or, and, shifts of both kinds,
 * 32-bit operations between 64-bit ones. No memory traffic: what is measured is the choice of instructions.
 * Memory: 32 bytes, read only.
 */
#include "bench.h"

PROGRAM(alu_mix)
{
	NEED(32);
	u64 a = ((u64 *)mem)[0], b = ((u64 *)mem)[1], c = ((u64 *)mem)[2], d = ((u64 *)mem)[3];

	for (int i = 0; i < 256; i++) {
		a += b ^ c >> 7;
		b = b * 0x9e3779b97f4a7c15ULL - d;
		c ^= (u64)((long long)a >> 13) + (u32)b;
		d = (d << 5 | d >> 59) + (a & ~c);
		a = a << 3 ^ (u32)((u32)c * 2654435761U);
		b |= d & 0xff;
		c -= (u32)a >> 3;
	}
	return a ^ b ^ c ^ d;
}
