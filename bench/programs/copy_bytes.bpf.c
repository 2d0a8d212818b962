/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Copies 512 bytes one at a time. Native compilers turn the loop into vectors or a call of memcpy; the bytecode says
 * what it says.
 * Memory: 512 bytes in, 512 bytes out at 512.
 */
#include "bench.h"

PROGRAM(copy_bytes)
{
	NEED(1024);
	for (int i = 0; i < 512; i++)
		mem[512 + i] = mem[i];
	return *(u64 *)(mem + 512) ^ *(u64 *)(mem + 1016);
}
