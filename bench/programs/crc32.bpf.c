/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The CRC-32 of Ethernet over 512 bytes by the table of 256 entries: one dependent load, shift and exclusive or a byte.
 * Memory: 1024 bytes of table, 512 bytes of data; read only.
 */
#include "bench.h"

PROGRAM(crc32)
{
	NEED(1536);
	const u32 *table = (const u32 *)mem;
	const u8 *data = mem + 1024;
	u32 crc = 0xffffffff;

	for (int i = 0; i < 512; i++)
		crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xff];
	return crc ^ 0xffffffff;
}
