/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Nothing: the price of entering a program and leaving it.
 * Memory: 8 bytes, not touched.
 */
#include "bench.h"

PROGRAM(empty)
{
	(void)mem;
	return len;
}
