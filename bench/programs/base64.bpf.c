/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Encodes 384 bytes as Base64 by arithmetic, three bytes a round, and folds the result.
 * Memory: 384 bytes in, 512 bytes out at 384.
 */
#include "bench.h"

INLINE u8 digit(u32 six)
{
	if (six < 26)
		return 'A' + six;
	if (six < 52)
		return 'a' + six - 26;
	if (six < 62)
		return '0' + six - 52;
	return six == 62 ? '+' : '/';
}

PROGRAM(base64)
{
	NEED(896);
	u8 *out = mem + 384;
	u64 fold = *(u64 *)mem;

	for (int i = 0; i < 128; i++) {
		u32 three = (u32)mem[3 * i] << 16 | (u32)mem[3 * i + 1] << 8 | mem[3 * i + 2];

		out[4 * i] = digit(three >> 18);
		out[4 * i + 1] = digit(three >> 12 & 63);
		out[4 * i + 2] = digit(three >> 6 & 63);
		out[4 * i + 3] = digit(three & 63);
	}
	for (int i = 0; i < 64; i++)
		fold = rotate64(fold, 5) ^ *(u64 *)(out + 8 * i);
	return fold;
}
