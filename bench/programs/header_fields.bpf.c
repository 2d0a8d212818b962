/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Sixteen lines of 64 bytes: finds the end of each line's name, then hashes the name in lower case, as parsers of
 * header fields do.
 * Memory: 1024 bytes, each made a letter or a colon; read only.
 */
#include "bench.h"

PROGRAM(header_fields)
{
	NEED(1032);
	u64 result = *(u64 *)(mem + 1024);

	for (int line = 0; line < 16; line++) {
		const u8 *text = mem + line * 64;
		u64 end = 0, hash = line;

		for (int i = 0; i < 64; i++) {
			end = i;
			if ((text[i] & 31) == 26)
				break;
		}
		OPAQUE(end);
		for (u64 i = 0; i < 64; i++) {
			if (i >= end)
				break;
			hash = hash * 31 + (text[i] | 0x20);
		}
		OPAQUE(hash);
		result = result * 131 + hash + end;
	}
	return result;
}
