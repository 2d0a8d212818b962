/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * One ChaCha20 block (RFC 8439): ten double rounds of 32-bit additions, exclusive ors and rotations over sixteen words,
 * more than there are registers.
 * Memory: 48 bytes in (key, counter and nonce), 64 bytes out at 64.
 */
#include "bench.h"

#define QUARTER(a, b, c, d) \
	do { \
		a += b, d = rotate32(d ^ a, 16); \
		c += d, b = rotate32(b ^ c, 12); \
		a += b, d = rotate32(d ^ a, 8); \
		c += d, b = rotate32(b ^ c, 7); \
	} while (0)

PROGRAM(chacha20)
{
	NEED(128);
	const u32 *in = (const u32 *)mem;
	u32 *out = (u32 *)(mem + 64), s[16];
	u64 result = 0;

	s[0] = 0x61707865, s[1] = 0x3320646e, s[2] = 0x79622d32, s[3] = 0x6b206574;
	for (int i = 0; i < 12; i++)
		s[4 + i] = in[i];
	for (int round = 0; round < 10; round++) {
		QUARTER(s[0], s[4], s[8], s[12]);
		QUARTER(s[1], s[5], s[9], s[13]);
		QUARTER(s[2], s[6], s[10], s[14]);
		QUARTER(s[3], s[7], s[11], s[15]);
		QUARTER(s[0], s[5], s[10], s[15]);
		QUARTER(s[1], s[6], s[11], s[12]);
		QUARTER(s[2], s[7], s[8], s[13]);
		QUARTER(s[3], s[4], s[9], s[14]);
	}
	out[0] = s[0] + 0x61707865, out[1] = s[1] + 0x3320646e, out[2] = s[2] + 0x79622d32, out[3] = s[3] + 0x6b206574;
	for (int i = 0; i < 12; i++)
		out[4 + i] = s[4 + i] + in[i];
	for (int i = 0; i < 16; i++)
		result = result * 31 + out[i];
	return result;
}
