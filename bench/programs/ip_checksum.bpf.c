/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The one's-complement sum of 1500 bytes by words of 16 bits (RFC 1071), as the textbook has it. A compiler for a
 * machine with vectors does far better than any translator of bytecode.
 * Memory: 1500 bytes, read only.
 */
#include "bench.h"

PROGRAM(ip_checksum)
{
	NEED(1500);
	const u16 *words = (const u16 *)mem;
	u64 sum = 0;

	for (int i = 0; i < 750; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)~sum;
}
