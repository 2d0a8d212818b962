/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The sieve of Eratosthenes up to 1024: byte stores at growing strides.
 * Memory: 8 bytes to start from, 1024 bytes of work space at 8.
 */
#include "bench.h"

#define LIMIT 1024

PROGRAM(sieve)
{
	NEED(8 + LIMIT);
	u8 *composite = mem + 8;
	u64 sum = *(u64 *)mem;

	for (int i = 0; i < LIMIT / 8; i++)
		((u64 *)composite)[i] = 0;
	for (int i = 2; i < 32; i++)
		if (!composite[i])
			for (int multiple = i * i; multiple < LIMIT; multiple += i)
				composite[multiple] = 1;
	for (int i = 2; i < LIMIT; i++)
		sum += i & (composite[i] - 1);
	return sum;
}
