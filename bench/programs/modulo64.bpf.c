/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * 128 remainders of 64-bit numbers by divisors that are not known in advance.
 * Memory: 1024 bytes, read only.
 */
#include "bench.h"

PROGRAM(modulo64)
{
	NEED(1024);
	const u64 *numbers = (const u64 *)mem;
	u64 sum = numbers[127];

	for (int i = 0; i < 128; i++)
		sum = sum * 5 + sum % ((numbers[i] >> 20) | 1);
	return sum;
}
