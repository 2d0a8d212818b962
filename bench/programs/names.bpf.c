/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Thirty-two names of labels with their lengths in front, at most seven bytes each, as in DNS: every label's bytes are
 * hashed in an inner loop of few rounds.
 * Memory: 8 bytes to start from, 32 names of 32 bytes, each of four labels; read only.
 */
#include "bench.h"

PROGRAM(names)
{
	NEED(1032);
	u64 hash = *(u64 *)mem;

	for (int name = 0; name < 32; name++) {
		const u8 *text = mem + 8 + name * 32;

		for (int label = 0; label < 4; label++) {
			const u8 *bytes = text + label * 8;
			u64 length = bytes[0] & 7;

			for (u64 i = 1; i < 8; i++) {
				if (i > length)
					break;
				hash = hash * 33 + bytes[i];
			}
			OPAQUE(hash);
		}
	}
	return hash;
}
