/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Decodes text as UTF-8 as far as it goes, with a branch for each length of a sequence, and sums the code points.
 * Memory: 8 bytes to start from, 1024 bytes; read only.
 */
#include "bench.h"

PROGRAM(utf8_length)
{
	NEED(1032);
	u64 sum = *(u64 *)mem, left = mem[0] & 3, point = mem[1];

	for (int i = 0; i < 1024; i++) {
		u64 c = mem[8 + i];

		if (left && (c & 0xc0) == 0x80) {
			point = point << 6 | (c & 0x3f);
			left--;
			if (!left)
				sum += point;
		} else if (c < 0x80) {
			sum += c;
			left = 0;
		} else if (c >= 0xf0) {
			point = c & 7;
			left = 3;
		} else if (c >= 0xe0) {
			point = c & 15;
			left = 2;
		} else {
			point = c & 31;
			left = 1;
		}
		OPAQUE(left);
		OPAQUE(point);
		OPAQUE(sum);
	}
	return sum;
}
