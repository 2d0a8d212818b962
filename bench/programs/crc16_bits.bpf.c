/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * CRC-16/CCITT of 128 bytes, bit by bit: a short inner loop of eight rounds.
 * Memory: 128 bytes, read only.
 */
#include "bench.h"

PROGRAM(crc16_bits)
{
	NEED(128);
	u64 crc = 0xffff;

	for (int i = 0; i < 128; i++) {
		crc ^= (u64)mem[i] << 8;
		for (int bit = 0; bit < 8; bit++) {
			u64 high = crc >> 15 & 1;

			crc = (crc << 1 ^ (0x1021 & -high)) & 0xffff;
			OPAQUE(crc);
		}
	}
	return crc;
}
