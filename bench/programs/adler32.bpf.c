/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Adler-32 of 1024 bytes (RFC 1950): two sums for each byte, one division at the end.
 * Memory: 1024 bytes, read only.
 */
#include "bench.h"

PROGRAM(adler32)
{
	NEED(1024);
	u32 low = 1, high = 0;

	for (int i = 0; i < 1024; i++) {
		low += mem[i];
		high += low;
	}
	return (u64)(high % 65521) << 16 | low % 65521;
}
