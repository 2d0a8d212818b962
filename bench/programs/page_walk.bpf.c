/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 256 look-ups through three levels of tables of 64 entries, each entry the number of the next table, as page tables
 * and tries of addresses do.
 * Memory: 8 bytes to start from, then 1024 bytes of entries; read only.
 */
#include "bench.h"

PROGRAM(page_walk)
{
	NEED(1032);
	const u8 *tables = mem + 8;
	u64 address = *(u64 *)mem, sum = 0;

	for (int i = 0; i < 256; i++) {
		u64 entry = tables[address & 63];

		entry = tables[(entry & 15) << 6 | (address >> 6 & 63)];
		entry = tables[(entry & 15) << 6 | (address >> 12 & 63)];
		sum += entry;
		address = rotate64(address, 7) + sum;
	}
	return sum << 32 ^ address;
}
