/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The product of two matrices of 8 by 8 numbers of 32 bits.
 * Memory: 256 bytes each for both factors, 256 bytes out at 512.
 */
#include "bench.h"

#define SIZE 8

PROGRAM(matrix)
{
	NEED(3 * 4 * SIZE * SIZE);
	const u32 *left = (const u32 *)mem, *right = left + SIZE * SIZE;
	u32 *product = (u32 *)mem + 2 * SIZE * SIZE;
	u64 trace = 0;

	for (int row = 0; row < SIZE; row++) {
		for (int column = 0; column < SIZE; column++) {
			u32 sum = 0;

			for (int i = 0; i < SIZE; i++)
				sum += left[row * SIZE + i] * right[i * SIZE + column];
			product[row * SIZE + column] = sum;
		}
	}
	for (int i = 0; i < SIZE * SIZE; i++)
		trace = trace * 31 + product[i];
	return trace;
}
