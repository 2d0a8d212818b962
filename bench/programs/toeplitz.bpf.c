/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The Toeplitz hash of 64 flows of 12 bytes, as network cards spread them: for each bit that is set, a window of the
 * key.
 * Memory: 16 bytes of key, 768 bytes of flows; read only.
 */
#include "bench.h"

PROGRAM(toeplitz)
{
	NEED(784);
	u64 result = *(u64 *)mem;

	for (int flow = 0; flow < 64; flow++) {
		const u8 *bytes = mem + 16 + flow * 12;
		u64 key = *(u64 *)mem, hash = 0;

		for (int i = 0; i < 12; i++) {
			u64 byte = bytes[i];

			for (int bit = 0; bit < 8; bit++) {
				hash ^= key & -(byte >> 7 & 1);
				byte <<= 1;
				key = rotate64(key, 1);
				OPAQUE(byte);
			}
		}
		result = result * 31 + (hash >> 32);
	}
	return result;
}
