/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Fills eight records of 64 bytes with a constant, then searches each of sixteen others for a byte, with an early end.
 * Memory: 8 bytes to start from, 1024 bytes to search, 512 bytes that are filled.
 */
#include "bench.h"

PROGRAM(find_byte)
{
	NEED(1544);
	u64 result = *(u64 *)mem;

	for (int i = 0; i < 512; i++)
		mem[1032 + i] = 0x20;
	for (int record = 0; record < 16; record++) {
		const u8 *bytes = mem + 8 + record * 64;
		u64 at = 64;

		for (int i = 0; i < 64; i++) {
			if ((bytes[i] & 127) == 17) {
				at = i;
				break;
			}
		}
		OPAQUE(at);
		result = result * 67 + at;
	}
	return result + *(u64 *)(mem + 1032);
}
